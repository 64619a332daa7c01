//go:build linux

package compose

import (
	"fmt"
	"os"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// parseDockerfile reads a Dockerfile into its stages, and what BuildKit's linter says of it.
func parseDockerfile(path string) (stages []instructions.Stage, warnings []string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = file.Close() }()
	parsed, err := parser.Parse(file)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, w := range parsed.Warnings {
		warnings = append(warnings, w.Short)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, text string, where []parser.Range) {
		line := 0
		if len(where) > 0 {
			line = where[0].Start.Line
		}
		warnings = append(warnings, fmt.Sprintf("line %d: %s (%s)", line, text, rule))
	}})
	stages, arguments, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(arguments) > 0 {
		return nil, nil, fmt.Errorf("%s: ARG before FROM is not understood", path)
	}
	return stages, warnings, nil
}

// LintDockerfile returns what is wrong with a Dockerfile: what BuildKit's linter says, sources of COPY that do not exist, base images without
// a version, downloads by ADD, and stages that run as root. A stage that others copy from is there to build, and may.
func LintDockerfile(path string) ([]string, error) {
	stages, faults, err := parseDockerfile(path)
	if err != nil {
		return nil, err
	}
	builds := map[string]bool{}
	known := map[string]bool{}
	for i, stage := range stages {
		if !pinned(stage.BaseName) && !known[stage.BaseName] {
			faults = append(faults, fmt.Sprintf("FROM %s: no version is pinned", stage.BaseName))
		}
		for _, c := range stage.Commands {
			switch c := c.(type) {
			case *instructions.CopyCommand:
				if c.From == "" {
					continue
				}
				builds[c.From] = true
				if !known[c.From] {
					faults = append(faults, fmt.Sprintf("%s: there is no stage %s before it", c, c.From))
				}
			case *instructions.EntrypointCommand:
				if c.PrependShell {
					faults = append(faults, fmt.Sprintf("%s: use the JSON form, or a shell gets the signals", c))
				}
			case *instructions.AddCommand:
				faults = append(faults, fmt.Sprintf("%s: use COPY; ADD may download and unpack", c))
			}
		}
		known[stage.Name], known[fmt.Sprint(i)] = true, true
	}
	for i, stage := range stages {
		if !builds[stage.Name] && !builds[fmt.Sprint(i)] && isRoot(lastUser(stage)) {
			faults = append(faults, fmt.Sprintf("stage %d %s: runs as root", i, stage.Name))
		}
	}
	return faults, nil
}

// pinned tells whether a reference to an image names a version.
func pinned(reference string) bool {
	_, tag, _ := strings.Cut(reference, ":")
	return reference == "scratch" || tag != "" && tag != "latest"
}

func lastUser(stage instructions.Stage) string {
	user := ""
	for _, c := range stage.Commands {
		if c, ok := c.(*instructions.UserCommand); ok {
			user = c.User
		}
	}
	return user
}

// isRoot tells whether a user of an image or of a service is root, or is nobody in particular.
func isRoot(user string) bool {
	id, _, _ := strings.Cut(user, ":")
	return id == "" || id == "0" || id == "root"
}
