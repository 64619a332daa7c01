package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// Find tells whether there is a PostgreSQL, or how to get it.
func Find() error {
	_, err := find()
	return err
}

// find gives the directory of PostgreSQL's binaries: that of initdb on the PATH, else the newest where Debian puts them.
func find() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", err
		}
		return filepath.Dir(path), nil
	}
	newest, dir := 0, ""
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is sound
	for _, path := range found {
		bin := filepath.Dir(path)
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
		if _, missing := os.Stat(filepath.Join(bin, "postgres")); err == nil && missing == nil && version > newest {
			newest, dir = version, bin
		}
	}
	if dir == "" {
		return "", errors.New("PostgreSQL is needed (Debian, Ubuntu: apt-get install postgresql): no initdb found")
	}
	return dir, nil
}
