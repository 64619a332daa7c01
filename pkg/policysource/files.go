package policysource

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxFileBytes keeps a path that leads to something else entirely from filling the memory. 100,000 policies fit.
const maxFileBytes = 64 << 20

// digest identifies content: the files' names and bytes.
type digest [sha256.Size]byte

// content is what stood in the files at one time.
type content struct {
	files []string
	sum   digest
}

// Files lists the policy files that path stands for: itself, or those of the directory in the order of their names. A
// directory without any is an error.
func Files(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		if isPolicyFile(entry.Name()) {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: a directory without policy files (*.yaml, *.yml)", path)
	}
	return files, nil
}

// isPolicyFile tells policy files from what else lies in their directory: editors' backups and locks (x.yaml~, #x.yaml#,
// .#x.yaml, .x.yaml.swp), a ConfigMap's ..data, a README.
func isPolicyFile(name string) bool {
	ext := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml")
}

// readFiles reads what path stands for. All that cannot be read is reported at once.
func readFiles(path string) (content, error) {
	files, err := Files(path)
	if err != nil {
		return content{}, err
	}
	var faults []error
	hash := sha256.New()
	for _, file := range files {
		text, err := readFile(file, maxFileBytes)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		// The lengths keep a byte that moves from a name or file to the next from going unnoticed.
		var lengths [16]byte
		binary.BigEndian.PutUint64(lengths[:8], uint64(len(file)))
		binary.BigEndian.PutUint64(lengths[8:], uint64(len(text)))
		hash.Write(lengths[:])
		hash.Write([]byte(file))
		hash.Write(text)
	}
	return content{files: files, sum: digest(hash.Sum(nil))}, errors.Join(faults...)
}

// readFile reads a regular file of at most so many bytes: a pipe or device would block or never end.
func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from

	text, err := io.ReadAll(io.LimitReader(file, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > most:
		return nil, fmt.Errorf("%s: larger than %d MiB", path, most>>20)
	case len(bytes.TrimSpace(text)) == 0:
		// Most likely caught between truncation and writing. In a directory the other files would load without it.
		return nil, fmt.Errorf("%s: the file is empty", path)
	}
	return text, nil
}
