package doctest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// blockTimeout is how long the commands of one block may take.
const blockTimeout = 60 * time.Second

// sandbox is where the commands of documents run: a copy of the files that they name, with the built binary first on PATH.
type sandbox struct {
	dir string
	env []string
	// rewrite changes what a command or its output says to what is so here: the demo's ports.
	rewrite *strings.Replacer
}

// shims stand in for commands that cannot run inside of a test; ROOT is the project, REAL the command itself. Each fails if what the
// document asks for does not exist.
//   - make runs the real one with -n: the target and everything it depends on must exist. (`make test` runs this test.)
//   - go test compiles the packages and lists their tests without running them.
//   - docker looks for what it would build or start from. No daemon is at hand in a test.
var shims = map[string]string{
	"make": `exec REAL -n -C ROOT "$@" >/dev/null`,
	"go":   `cd ROOT && exec REAL "$@" -run '^$' >/dev/null`,
	"docker": `cd ROOT || exit
case $1 in
build) test -f Dockerfile ;;
compose) test -f docker-compose.yml ;;
run) grep -q /etc/envoy-rls/policies.yaml Dockerfile ;;
*) echo "docker $1: the check of the documents does not know it" >&2; exit 1 ;;
esac`,
}

// newSandbox makes a sandbox in dir. Folders are copied there from root; binaries come first on PATH.
func newSandbox(root, dir, binaries string) (*sandbox, error) {
	shimDir := filepath.Join(dir, ".shims")
	if err := os.MkdirAll(shimDir, 0o700); err != nil {
		return nil, err
	}
	for name, text := range shims {
		path, err := exec.LookPath(name)
		if err != nil && strings.Contains(text, "REAL") {
			return nil, err
		}
		script := "#!/bin/sh\n" + strings.NewReplacer("ROOT", strconv.Quote(root), "REAL", path).Replace(text)
		if err := os.WriteFile(filepath.Join(shimDir, name), []byte(script), 0o700); err != nil {
			return nil, err
		}
	}
	for _, folder := range []string{"config", "envoy"} {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(root, folder))); err != nil {
			return nil, err
		}
	}
	search := shimDir + string(os.PathListSeparator) + binaries + string(os.PathListSeparator) + os.Getenv("PATH")
	return &sandbox{dir: dir, env: append(os.Environ(), "PATH="+search), rewrite: strings.NewReplacer()}, nil
}

// run gives a script to bash and returns all it printed.
func (s *sandbox) run(ctx context.Context, script string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, blockTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir, cmd.Env, cmd.WaitDelay = s.dir, s.env, time.Second
	out, err := cmd.CombinedOutput()
	return strings.ReplaceAll(string(out), "\r", ""), err
}

// checkShell runs a ```sh block, all of whose commands must succeed.
func (s *sandbox) checkShell(ctx context.Context, b block) error {
	out, err := s.run(ctx, "set -euo pipefail\n"+s.rewrite.Replace(b.body))
	if err != nil {
		return b.errorf("%w\n%s", err, out)
	}
	return nil
}

// command is one command of a ```console block with the output that the document promises.
type command struct {
	text string
	want []string
}

// parseConsole splits a ```console block: "$ " starts a command, a trailing backslash continues it, the rest is output.
func parseConsole(b block) ([]command, error) {
	var commands []command
	continued := false
	for _, line := range strings.Split(strings.TrimSuffix(b.body, "\n"), "\n") {
		text, starts := strings.CutPrefix(line, "$ ")
		switch {
		case continued:
			commands[len(commands)-1].text += "\n" + line
		case starts:
			commands = append(commands, command{text: text})
		case len(commands) == 0:
			return nil, b.errorf("starts with output, not with a command")
		default:
			last := &commands[len(commands)-1]
			last.want = append(last.want, line)
			continue
		}
		continued = strings.HasSuffix(line, `\`)
	}
	return commands, nil
}

const endMark = "<end of command>"

// checkConsole runs a ```console block and compares what each command prints. A command may fail only if the next one is
// `echo $?`, so that the document shows it.
func (s *sandbox) checkConsole(ctx context.Context, b block) error {
	commands, err := parseConsole(b)
	if err != nil {
		return err
	}
	var script strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&script, "%s\nrc=$?; printf '\\n%s %%d\\n' $rc; (exit $rc)\n", s.rewrite.Replace(c.text), endMark)
	}
	out, _ := s.run(ctx, script.String()) // the exit codes of the commands are in the output
	for i, c := range commands {
		var got string
		var found bool
		got, out, found = strings.Cut(out, "\n"+endMark+" ")
		if !found {
			return b.errorf("$ %s did not end\n%s", c.text, got)
		}
		code, rest, _ := strings.Cut(out, "\n")
		out = rest
		shown := i+1 < len(commands) && commands[i+1].text == "echo $?"
		if code != "0" && !shown {
			return b.errorf("$ %s: exit code %s\n%s", c.text, code, got)
		}
		if !matches(strings.Join(c.want, "\n"), strings.TrimRight(got, "\n"), s.rewrite) {
			return b.errorf("$ %s printed\n%s\nbut the document says\n%s", c.text, got, strings.Join(c.want, "\n"))
		}
	}
	return nil
}

// matches compares output with what a document shows, in which … on a line of its own stands for any lines and … inside of
// a line for any text on it.
func matches(want, got string, rewrite *strings.Replacer) bool {
	pattern := regexp.QuoteMeta(strings.TrimRight(rewrite.Replace(want), "\n"))
	pattern = regexp.MustCompile(`(?m)^…$`).ReplaceAllString(pattern, `(?s:.*)`)
	pattern = strings.ReplaceAll(pattern, "…", `[^\n]*`)
	return regexp.MustCompile("^" + pattern + "$").MatchString(got)
}
