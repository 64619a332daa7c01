//go:build linux

package compose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// copy carries out COPY.
func (s *stage) copy(ctx context.Context, c *instructions.CopyCommand) error {
	if c.Chmod != "" || c.Parents || len(c.ExcludePatterns)+len(c.SourceContents) > 0 {
		return errors.New("this form is not understood here")
	}
	from, ignored := s.source, (*patternmatcher.PatternMatcher)(nil)
	var err error
	if c.From != "" {
		i, err := s.builder.stage(ctx, s.source, s.earlier, c.From)
		if err != nil {
			return err
		}
		from = i.files
	} else if ignored, err = dockerignore(s.source); err != nil {
		return err
	}
	uid, gid, err := owner(c.Chown)
	if err != nil {
		return err
	}
	to := c.DestPath
	if !filepath.IsAbs(to) { // a slash at the end counts
		to = strings.TrimSuffix(s.dir, "/") + "/" + to
	}
	for _, source := range c.SourcePaths {
		if strings.ContainsAny(source, "*?[$") {
			return errors.New("patterns are not understood here")
		}
		t := tree{from: from, to: filepath.Join(s.files, to), ignored: ignored, uid: uid, gid: gid}
		if err := t.copy(filepath.Clean("/" + source)[1:], strings.HasSuffix(to, "/")); err != nil {
			return err
		}
	}
	return nil
}

func dockerignore(dir string) (*patternmatcher.PatternMatcher, error) {
	file, err := os.Open(filepath.Join(dir, ".dockerignore"))
	if errors.Is(err, fs.ErrNotExist) {
		return patternmatcher.New(nil)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	patterns, err := ignorefile.ReadAll(file)
	if err != nil {
		return nil, err
	}
	return patternmatcher.New(patterns)
}

// tree copies files below from to below to.
type tree struct {
	from, to string
	ignored  *patternmatcher.PatternMatcher // nil: nothing
	uid, gid int
}

// copy copies a file, or what is in a directory. into says that the destination is a directory.
func (t *tree) copy(source string, into bool) error {
	path := filepath.Join(t.from, source)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return t.visit(path, file, entry)
		})
	}
	if there, err := os.Stat(t.to); into || err == nil && there.IsDir() {
		return t.put(path, filepath.Join(t.to, filepath.Base(source)))
	}
	return t.put(path, t.to)
}

func (t *tree) visit(top, path string, entry fs.DirEntry) error {
	inContext, err := filepath.Rel(t.from, path)
	if err != nil {
		return err
	}
	if t.ignored != nil && inContext != "." {
		skip, err := t.ignored.MatchesOrParentMatches(inContext)
		if err != nil {
			return err
		}
		if skip && entry.IsDir() && !t.ignored.Exclusions() {
			return filepath.SkipDir
		}
		if skip {
			return nil
		}
	}
	below, err := filepath.Rel(top, path)
	if err != nil {
		return err
	}
	return t.put(path, filepath.Join(t.to, below))
}

// put copies one file, or makes one directory.
func (t *tree) put(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		return os.Chown(to, t.uid, t.gid)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file", from)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, data, info.Mode().Perm()); err != nil {
		return err
	}
	return os.Chown(to, t.uid, t.gid)
}

// owner reads UID:GID; an empty one is root, and a group that is not named has the number of the user.
func owner(text string) (uid, gid int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	user, group, found := strings.Cut(text, ":")
	if !found {
		group = user
	}
	if uid, err = strconv.Atoi(user); err == nil {
		gid, err = strconv.Atoi(group)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("user %s: only numbers UID:GID are understood here", text)
	}
	return uid, gid, nil
}
