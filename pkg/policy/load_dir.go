package policy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxFileBytes bounds what is read of one file.
const maxFileBytes = 16 << 20

// readPath reads a file, or the policy files of a directory.
func readPath(path string) ([]Text, Faults) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, Faults{fileFault(path, err)}
	case info.IsDir():
		return readDir(path)
	}
	data, err := readFile(path)
	if err != nil {
		return nil, Faults{fileFault(path, err)}
	}
	return []Text{{path, data}}, nil
}

// fileFault words what the file system says. The path stands in front already.
func fileFault(path string, err error) Fault {
	reason := err
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		reason = pathError.Err
	}
	return Fault{Pos: Position{File: path}, Message: fmt.Sprintf("cannot be read: %v", reason), cause: err}
}

// readDir reads the policy files of a directory. Kubernetes updates a mounted ConfigMap by swapping the symbolic link ..data, which all files
// point through: if that happens meanwhile, files of two versions may have been read, and all are read again.
func readDir(dir string) (texts []Text, faults Faults) {
	const attempts = 5
	for range attempts {
		before, _ := os.Readlink(filepath.Join(dir, "..data"))
		texts, faults = readDirOnce(dir)
		if after, _ := os.Readlink(filepath.Join(dir, "..data")); after == before {
			break
		}
	}
	return texts, faults
}

func readDirOnce(dir string) ([]Text, Faults) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, Faults{fileFault(dir, err)}
	}
	var texts []Text
	var faults Faults
	for _, e := range entries {
		if !isPolicyFile(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		data, err := readFile(path)
		if err != nil {
			faults = append(faults, fileFault(path, err))
			continue
		}
		texts = append(texts, Text{path, data})
	}
	if len(texts)+len(faults) == 0 {
		return nil, Faults{newFault(Position{File: dir}, "", "the directory has no *.yaml or *.yml file")}
	}
	return texts, faults
}

// isPolicyFile tells policy files from hidden ones, editors' backups (.x.swp, x.yaml~, #x.yaml#) and tests of policies (x_test.yaml) by name.
func isPolicyFile(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") {
		return false
	}
	ext := filepath.Ext(name)
	return (ext == ".yaml" || ext == ".yml") && !strings.HasSuffix(strings.TrimSuffix(name, ext), "_test")
}

// readFile reads a regular file. It looks first: opening a named pipe would wait for ever.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errors.New("it is a directory")
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}
