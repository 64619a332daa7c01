package policysource

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// The kept file is one line with the SHA-256 of all that follows it, and that is a kept in JSON.
type kept struct {
	Number int64      `json:"number"`
	Sum    string     `json:"sum"`
	Files  []keptText `json:"files"`
}

type keptText struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

// maxKept bounds what is read of a kept file, in bytes.
const maxKept = 256 << 20

var errDamaged = errors.New("it is damaged: its SHA-256 is not that of its content")

// keep writes what is in force to the kept file. What could not be written is tried again by keepAgain.
func (s *Source) keep(version Version, texts []policy.Text) {
	path := s.opts.Remote.KeptFile
	s.unkept = nil
	if path == "" {
		return
	}
	k := kept{Number: version.Number, Sum: version.Sum}
	for _, text := range texts {
		k.Files = append(k.Files, keptText{text.Path, string(text.Data)})
	}
	err := writeKept(path, k)
	if err == nil {
		return
	}
	s.unkept = &k
	if s.opts.OnNotKept != nil {
		s.opts.OnNotKept(fmt.Errorf("keep the policies in %s: %w", path, err))
	}
}

// keepAgain writes what keep could not: a disk may have been full, or not there yet.
func (s *Source) keepAgain() {
	if s.unkept != nil && writeKept(s.opts.Remote.KeptFile, *s.unkept) == nil {
		s.unkept = nil
	}
}

func writeKept(path string, k kept) error {
	body, err := json.MarshalIndent(k, "", " ")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = next.Write(append(hex.AppendEncode(nil, sum[:]), "\n"+string(body)...))
	err = errors.Join(err, next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return nil
}

// useKept puts what was kept in force, for want of something better. cause says why there is nothing better.
func (s *Source) useKept(cause error) (*policy.Set, error) {
	path := s.opts.Remote.KeptFile
	if path == "" {
		return nil, cause
	}
	set, version, err := readKept(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w; and no policies have been kept in %s", cause, path)
	case err != nil:
		return nil, fmt.Errorf("%w; and the policies kept in %s cannot be used: %w", cause, path, err)
	}
	if s.opts.OnKept != nil {
		s.opts.OnKept(set, cause)
	}
	s.accept(version.digest(), set, Status{Number: version.Number, Kept: true})
	return set, nil
}

func readKept(path string) (*policy.Set, Version, error) {
	text, err := readFile(path, maxKept)
	if err != nil {
		return nil, Version{}, err
	}
	line, body, _ := bytes.Cut(text, []byte("\n"))
	if sum := sha256.Sum256(body); string(line) != hex.EncodeToString(sum[:]) {
		return nil, Version{}, errDamaged
	}
	var k kept
	if err := json.Unmarshal(body, &k); err != nil {
		return nil, Version{}, err
	}
	var texts []policy.Text
	for _, f := range k.Files {
		texts = append(texts, policy.Text{Path: f.Name, Data: []byte(f.Content)})
	}
	set, err := loadVersion(k.Number, texts)
	return set, Version{k.Number, k.Sum}, err
}
