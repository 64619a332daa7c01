package policy

import (
	"bytes"
	"errors"
	"fmt"
)

// byteOrderMark may stand at the beginning of a file written on Windows.
var byteOrderMark = []byte("\ufeff")

// Parse reads one policy file from data and checks everything that can be checked without the others. path only names it in
// positions. The error is of type [Faults] and holds all faults of the file.
func Parse(path string, data []byte) (*File, error) {
	file, faults := parse(path, data)
	faults.add(duplicateIDs([]*File{file})...)
	if err := quoted(faults, file); err != nil {
		return nil, err
	}
	return file, nil
}

// Load reads policy files and makes a Set of them. Each path is a file or a directory: of a directory every *.yaml and *.yml
// counts, in the order of names, but not hidden files (a ConfigMap's ..data among them), editors' backups and tests (*_test.yaml). The error is of
// type [Faults] and holds all faults of all files, those of the file system included.
func Load(paths ...string) (*Set, error) {
	if len(paths) == 0 {
		return nil, errNoFile
	}
	var l loading
	for _, path := range paths {
		texts, bad := readPath(path)
		l.faults.add(bad...)
		l.add(texts)
	}
	return l.set()
}

var errNoFile = errors.New("no policy file given")

// Text is the content of a policy file. Path only names it in positions.
type Text struct {
	Path string
	Data []byte
}

// Read reads what [Load] would load of paths, for those who keep the texts somewhere. The error is of type [Faults] and holds what cannot be
// read; what can be read has not been checked.
func Read(paths ...string) ([]Text, error) {
	if len(paths) == 0 {
		return nil, errNoFile
	}
	var texts []Text
	var faults Faults
	for _, path := range paths {
		some, bad := readPath(path)
		texts = append(texts, some...)
		faults.add(bad...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return texts, nil
}

// LoadTexts makes a Set of policy files whose texts are at hand, in this order. The error is like that of [Load].
func LoadTexts(texts ...Text) (*Set, error) {
	if len(texts) == 0 {
		return nil, errNoFile
	}
	var l loading
	l.add(texts)
	return l.set()
}

// loading is what has been read of a set's files so far.
type loading struct {
	files  []*File
	faults Faults
}

func (l *loading) add(texts []Text) {
	for _, text := range texts {
		file, bad := parse(text.Path, text.Data)
		l.files = append(l.files, file)
		l.faults.add(bad...)
	}
}

// set makes a set of the files unless there are faults.
func (l *loading) set() (*Set, error) {
	set, bad := build(l.files)
	l.faults.add(bad...)
	if err := quoted(l.faults, l.files...); err != nil {
		return nil, err
	}
	return set, nil
}

// parse reads one file as far as it can. Its faults are not yet quoted.
func parse(path string, data []byte) (*File, Faults) {
	file := &File{Path: path, IPv6Prefix: DefaultIPv6Prefix, source: bytes.Clone(bytes.TrimPrefix(data, byteOrderMark))}
	l := &loader{path: path}
	if len(data) > maxFileBytes {
		l.fault(Position{File: path}, "", "larger than %d MiB", maxFileBytes>>20)
		return file, l.faults
	}
	if root, ok := l.document(file.source); ok {
		l.file(file, root)
	}
	return file, l.faults
}

// duplicateIDs gives a fault for every policy whose id an earlier one has, in the same file or another.
func duplicateIDs(files []*File) Faults {
	var faults Faults
	first := map[string]Position{}
	for _, file := range files {
		for _, p := range file.Policies {
			if p.ID == "" {
				continue
			}
			if at, taken := first[p.ID]; taken {
				faults.add(newFault(p.Pos, fmt.Sprintf("first at %v", at), "two policies have the id %q", p.ID))
				continue
			}
			first[p.ID] = p.Pos
		}
	}
	return faults
}
