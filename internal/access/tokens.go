package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
	"time"
)

const (
	mostBytes  = 64 << 10 // of the file
	mostTokens = 1000
	leastToken = 16 // characters
	// patience is for a file that is just being written in place. There is no token that is good meanwhile.
	patience = 500 * time.Millisecond
	between  = 20 * time.Millisecond // two looks at it
)

var errUnknown = errors.New("the token is unknown")

// tokens are those of a file.
type tokens struct {
	file string
	told func(error)

	mu   sync.Mutex
	last state // guarded by mu
}

// state is what the file was like: its hash, or why it could not be used.
type state struct {
	sum   [sha256.Size]byte
	fault string
}

type token struct {
	name string
	sum  [sha256.Size]byte // of the token, which is not kept
}

// open reads the file for the first time.
func (t *tokens) open() error {
	_, s, err := t.read()
	t.last = s
	return err
}

// name is that of a token. The error is errUnknown, or says why the file cannot be used.
func (t *tokens) name(given string) (string, error) {
	known, err := t.now()
	if err != nil {
		return "", err
	}
	sum, name, found := sha256.Sum256([]byte(given)), "", 0
	for i := range known { // all of them, so that the time tells nothing
		if subtle.ConstantTimeCompare(sum[:], known[i].sum[:]) == 1 {
			name, found = known[i].name, 1
		}
	}
	if found == 0 {
		return "", errUnknown
	}
	return name, nil
}

// now are the tokens that the file has now. One that cannot be used makes none good: a token that was taken away must not stay good since there is a
// slip elsewhere in the file.
func (t *tokens) now() ([]token, error) {
	known, s, err := t.read()
	for until := time.Now().Add(patience); err != nil && t.isNew(s) && time.Now().Before(until); known, s, err = t.read() {
		time.Sleep(between)
	}
	t.mu.Lock()
	other := s != t.last
	t.last = s
	t.mu.Unlock()
	if other {
		t.told(err)
	}
	return known, err
}

func (t *tokens) isNew(s state) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return s != t.last
}

// read gives the tokens that the file has, or why it cannot be used.
func (t *tokens) read() ([]token, state, error) {
	text, err := readFile(t.file)
	if err != nil {
		return nil, state{fault: err.Error()}, err
	}
	known, err := parse(text)
	if err != nil {
		err = fmt.Errorf("%s: %w", t.file, err)
		return nil, state{fault: err.Error()}, err
	}
	return known, state{sum: sha256.Sum256(text)}, nil
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err) // without the path, in whose place somebody may have given the token itself
	}
	defer func() { _ = file.Close() }() // nothing was written
	text, err := io.ReadAll(io.LimitReader(file, mostBytes+1))
	if err == nil && len(text) > mostBytes {
		err = fmt.Errorf("more than %d bytes", mostBytes)
	}
	return text, err
}

var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// parse quotes nothing of what it reads: any of it may be a token.
func parse(text []byte) ([]token, error) {
	var all []token
	lines := map[[sha256.Size]byte]int{}
	for i, line := range bytes.Split(text, []byte("\n")) {
		words := bytes.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		t := token{name: "unnamed"}
		secret := words[len(words)-1]
		switch {
		case len(words) > 2:
			return nil, fmt.Errorf("line %d: want a token, or a name and a token", i+1)
		case len(words) == 2 && !goodName.Match(words[0]):
			return nil, fmt.Errorf("line %d: want a name of at most 64 letters, digits and . _ @ -", i+1)
		case len(secret) < leastToken:
			return nil, fmt.Errorf("line %d: the token has fewer than %d characters", i+1, leastToken)
		case len(words) == 2:
			t.name = string(words[0])
		}
		t.sum = sha256.Sum256(secret)
		if at, twice := lines[t.sum]; twice {
			return nil, fmt.Errorf("line %d: the token of line %d again", i+1, at)
		}
		lines[t.sum] = i + 1
		all = append(all, t)
	}
	switch {
	case len(all) == 0:
		return nil, errors.New("no token")
	case len(all) > mostTokens:
		return nil, fmt.Errorf("more than %d tokens", mostTokens)
	}
	return all, nil
}
