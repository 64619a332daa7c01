package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// TestScripts runs the stories in testdata/script. Their commands, besides those of testscript (stdout, stderr, cmp, …):
//
//	start FILE [instances=N] [timeout=DURATION|shipped] [log=FILE] [FLAG…]
//	                        start the upstream, N instances of the service with policy file FILE, and Envoy, which writes the access
//	                        log of docs/simulate.md to log
//	http METHOD TARGET …    send one request; prints status, header fields, an empty line and the body
//	burst N METHOD TARGET … send N requests one after another, with {n} in the body numbered; prints the statuses in order:
//	                        20 x 200, 5 x 429
//	crowd N M METHOD …      N clients at once, M requests each; prints the statuses: 100 x 200, 900 x 429
//	spread N METHOD …       one request from each of N addresses; prints the statuses
//	load N METHOD …         N clients send requests without a pause until
//	load stop               which prints the statuses
//	until REGEXP COMMAND …  repeat the command until what it prints matches
//	simulate FLAG…          run envoy-rls simulate; prints what it prints
//	seen [reset]            what reached the upstream: requests 20, logins 10
//	stat NAME               the value of a counter or gauge of Envoy
//	unasked                 for how many requests Envoy got no answer from the service
//	service VERB [I]        instance I (0): term, kill, pause, resume (signals), start, wait (for its end; prints the exit code)
//	service stop            kill all instances and wait for their end
//	policies FILE           put FILE in the place of the policy file
//
// The file shipped.yaml is config/policies.yaml; $KEY59K is 59,000 letters.
//
// A request is METHOD TARGET, then header lines 'name: value' (with Go's escapes, such as \xff), then optionally from=ADDRESS and
// body=TEXT.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			s := &story{dir: env.WorkDir}
			env.Values[storyKey{}] = s
			env.Defer(s.end)
			env.Setenv("KEY59K", strings.Repeat("k", 59_000))
			shipped, err := os.ReadFile("../config/policies.yaml")
			if err != nil {
				return err
			}
			return os.WriteFile(env.WorkDir+"/shipped.yaml", shipped, 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start": command((*story).start), "http": command((*story).http), "burst": command((*story).burst),
			"crowd": command((*story).crowd), "spread": command((*story).spread), "load": command((*story).loadCommand),
			"seen": command((*story).seen), "stat": command((*story).stat), "unasked": command((*story).unasked), "service": command((*story).service),
			"policies": command((*story).policies), "until": command((*story).until), "simulate": command((*story).simulate),
		},
	})
}

type storyKey struct{}

// story is what one script has running.
type story struct {
	dir  string
	lab  *harness.Lab
	load *harness.Load
	file string // the policy file in force
}

func (s *story) end() {
	if s.load != nil {
		s.load.Stop()
	}
	if s.lab != nil {
		s.lab.Stop()
	}
}

// command makes a script's command of a method that returns what it prints.
func command(run func(*story, context.Context, []string) (string, error)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		s := ts.Value(storyKey{}).(*story)
		ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
		defer cancel()
		text, err := run(s, ctx, args)
		_, _ = fmt.Fprintln(ts.Stdout(), text)
		if neg {
			ts.Fatalf("no command here can be expected to fail")
		}
		ts.Check(err)
	}
}

func (s *story) start(ctx context.Context, args []string) (string, error) {
	if len(args) == 0 || s.lab != nil {
		return "", errors.New("usage: start FILE …, once")
	}
	s.file = s.dir + "/in-force.yaml"
	if _, err := s.policies(ctx, args[:1]); err != nil {
		return "", err
	}
	with := setup{policies: s.file}
	for _, arg := range args[1:] {
		var err error
		switch name, value, _ := strings.Cut(arg, "="); {
		case name == "instances":
			with.instances, err = strconv.Atoi(value)
		case name == "log":
			with.envoyConfig, err = s.withAccessLog(value)
		case arg == "timeout=shipped":
			with.envoyTimeout = shippedTimeout
		case name == "timeout":
			with.envoyTimeout, err = time.ParseDuration(value)
		default:
			with.args = append(with.args, arg)
		}
		if err != nil {
			return "", err
		}
	}
	var err error
	s.lab, err = startLab(ctx, s.dir, with)
	return "", err
}

// policies replaces the policy file in one step, as editors and ConfigMaps do.
func (s *story) policies(_ context.Context, args []string) (string, error) {
	text, err := os.ReadFile(s.dir + "/" + args[0])
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(s.file+".new", text, 0o600); err != nil {
		return "", err
	}
	return "", os.Rename(s.file+".new", s.file)
}

func (s *story) seen(_ context.Context, args []string) (string, error) {
	requests, logins := s.lab.Upstream.Seen()
	if len(args) == 1 && args[0] == "reset" {
		s.lab.Upstream.Reset()
	}
	return fmt.Sprintf("requests %d, logins %d", requests, logins), nil
}

func (s *story) stat(ctx context.Context, args []string) (string, error) {
	value, err := s.lab.EnvoyStat(ctx, args[0])
	return strconv.Itoa(value), err
}

func (s *story) unasked(ctx context.Context, _ []string) (string, error) {
	value, err := s.lab.Unasked(ctx)
	return strconv.Itoa(value), err
}

func (s *story) service(ctx context.Context, args []string) (string, error) {
	if args[0] == "stop" {
		for _, p := range s.lab.Services {
			p.Stop(0)
		}
		return "", nil
	}
	i := 0
	if len(args) > 1 {
		var err error
		if i, err = strconv.Atoi(args[1]); err != nil {
			return "", err
		}
	}
	signals := map[string]os.Signal{"term": syscall.SIGTERM, "kill": syscall.SIGKILL, "pause": syscall.SIGSTOP, "resume": syscall.SIGCONT}
	if sig, ok := signals[args[0]]; ok {
		return "", s.lab.Services[i].Signal(sig)
	}
	switch args[0] {
	case "start":
		return "", s.lab.StartService(ctx, i)
	case "wait":
		code, err := s.lab.Services[i].Wait(ctx)
		return "exit " + strconv.Itoa(code), err
	}
	return "", fmt.Errorf("service %s is not known", args[0])
}

// until repeats http, seen, stat or simulate.
func (s *story) until(ctx context.Context, args []string) (string, error) {
	want, err := regexp.Compile("(?m)" + args[0])
	if err != nil {
		return "", err
	}
	repeat := map[string]func(context.Context, []string) (string, error){"http": s.http, "seen": s.seen, "stat": s.stat, "simulate": s.simulate}[args[1]]
	if repeat == nil {
		return "", fmt.Errorf("until cannot repeat %s", args[1])
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var text string
	err = harness.Until(ctx, args[0], func() error {
		var err error
		if text, err = repeat(ctx, args[2:]); err == nil && !want.MatchString(text) {
			return fmt.Errorf("got %s", text)
		}
		return err
	})
	return text, err
}
