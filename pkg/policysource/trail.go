package policysource

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// trail is the way from a path to the files it stands for: the names that, if they change, may change what is read.
type trail struct {
	names map[string]bool
	// dirs are the directories that hold those names, as they were found: one that was replaced under its name needs a new
	// watch.
	dirs map[string]fs.FileInfo
	// all is the directory whose every policy file counts; empty if path is a file.
	all string
}

// has reports whether a change of name may change what is read.
func (t trail) has(name string) bool {
	return t.names[name] || t.all != "" && filepath.Dir(name) == t.all && isPolicyFile(filepath.Base(name))
}

// watches reports whether dir is among the directories, and still the same one.
func (t trail) watches(dir string, info fs.FileInfo) bool {
	known, ok := t.dirs[dir]
	return ok && os.SameFile(known, info)
}

// follow walks the trail of path as far as it leads.
func follow(path string) trail {
	t := trail{names: map[string]bool{}, dirs: map[string]fs.FileInfo{}}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return t
	}
	end := t.walk(absolute)
	if entries, err := os.ReadDir(end); err == nil {
		t.all = end
		t.addDir(end)
		for _, entry := range entries {
			if isPolicyFile(entry.Name()) {
				t.walk(filepath.Join(end, entry.Name()))
			}
		}
	}
	return t
}

// walk notes the symbolic links on the way along an absolute path, its end and the directory that holds the end. It returns
// the end without links, or as far as it came.
func (t trail) walk(path string) string {
	const maxLinks = 40 // as the system: more is a loop
	links := 0
	at := string(filepath.Separator)
	rest := parts(path)
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			at = filepath.Dir(at)
			continue
		}
		name := filepath.Join(at, part)
		target, err := os.Readlink(name)
		if err != nil || links == maxLinks { // not a link, or not there
			if len(rest) < 2 {
				t.add(name)
			}
			at = name
			continue
		}
		links++
		t.add(name)
		if filepath.IsAbs(target) {
			at = string(filepath.Separator)
		}
		rest = append(parts(target), rest...)
	}
	return at
}

// parts are the components of a path that lead anywhere.
func parts(path string) []string {
	var out []string
	for part := range strings.SplitSeq(path, string(filepath.Separator)) {
		if part != "" && part != "." {
			out = append(out, part)
		}
	}
	return out
}

func (t trail) add(name string) {
	t.names[name] = true
	t.addDir(filepath.Dir(name))
}

func (t trail) addDir(dir string) {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		t.dirs[dir] = info
	}
}
