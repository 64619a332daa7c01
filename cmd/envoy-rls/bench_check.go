package main

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/envoy-rls/envoy-rls/internal/bench"
)

// check finds what would do nothing, or only go wrong after all has been measured.
func (b *benchmark) check(f *pflag.FlagSet) error {
	if (b.addr == "") == (b.lab.value == "") {
		return misused("say what to load: --lab memory, redis or cluster, or --addr HOST:PORT")
	}
	others, needs := []string{"admin", "pid", "redis", "tls", "ca-file", "cert-file", "key-file", "server-name"}, "--addr"
	if b.addr != "" {
		others, needs = []string{"serve-arg", "no-floor"}, "--lab"
	}
	for _, name := range others {
		if f.Changed(name) {
			return misused("--%s goes with %s", name, needs)
		}
	}
	if err := b.checkNumbers(f.Changed); err != nil {
		return err
	}
	for _, path := range []string{b.json, b.markdown} {
		if path == "" {
			continue
		}
		if err := isFolder(filepath.Dir(path)); err != nil {
			return misused("%w", err)
		}
	}
	return nil
}

// isFolder is an error if path is none.
func isFolder(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", path)
	}
	return err
}

// checkNumbers holds what was given against what a scenario may have.
func (b *benchmark) checkNumbers(given func(flag string) bool) error {
	faults := []error{inRange("rounds", b.rounds, 1, 1000)}
	if b.timeout <= 0 || given("duration") && b.duration <= 0 || b.duration > bench.MaxTime {
		faults = append(faults, misused("--duration and --timeout must be above zero, and --duration at most a day"))
	}
	if b.warmUp < 0 || b.warmUp > bench.MaxTime {
		faults = append(faults, misused("--warm-up must be from nothing to a day"))
	}
	if b.pid < 0 {
		faults = append(faults, misused("--pid %d: there is no such process", b.pid))
	}
	if given("workers") {
		faults = append(faults, inRange("workers", b.workers, 1, bench.MaxWorkers))
	}
	if given("connections") {
		faults = append(faults, inRange("connections", b.conns, 1, bench.MaxConnections))
	}
	if given("keys") {
		faults = append(faults, inRange("keys", b.keys, 1, bench.MaxKeys))
	}
	return cmp.Or(faults...)
}

func inRange[T int | uint64](flag string, n, least, most T) error {
	if n < least || n > most {
		return misused("--%s %d: want %d to %d", flag, n, least, most)
	}
	return nil
}

// commandLine is how the program was called, without the folder it lies in and without passwords: it stands in what is published.
func commandLine(args []string) string {
	shown := []string{filepath.Base(args[0])}
	for _, arg := range args[1:] {
		shown = append(shown, withoutPasswords(arg))
	}
	return strings.Join(shown, " ")
}

// withoutPasswords takes what may be secret out of the URLs in an argument: one, or a list with commas, perhaps after --flag=.
func withoutPasswords(arg string) string {
	pieces := strings.Split(arg, ",")
	for i, piece := range pieces {
		before, rest, found := strings.Cut(piece, "://")
		if !found {
			continue
		}
		flag := strings.LastIndexByte(before, '=') + 1
		u, err := url.Parse(before[flag:] + "://" + rest)
		if err != nil {
			pieces[i] = before + "://***"
			continue
		}
		shown := u.Host + u.Path
		if u.User != nil {
			shown = "***@" + shown
		}
		if u.RawQuery != "" {
			shown += "?***"
		}
		pieces[i] = before + "://" + shown
	}
	return strings.Join(pieces, ",")
}
