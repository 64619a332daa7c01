package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// request reads METHOD TARGET 'name: value'… from=… body=….
func request(args []string) (r harness.Request, from string, err error) {
	if len(args) < 2 {
		return r, "", errors.New("want METHOD TARGET …")
	}
	r.Method, r.Target = args[0], args[1]
	for _, arg := range args[2:] {
		if value, ok := strings.CutPrefix(arg, "from="); ok {
			from = value
			continue
		}
		if value, ok := strings.CutPrefix(arg, "body="); ok {
			r.Body = value
			continue
		}
		line, err := strconv.Unquote(`"` + strings.ReplaceAll(arg, `"`, `\"`) + `"`)
		if err != nil {
			return r, "", fmt.Errorf("header %q: %w", arg, err)
		}
		r.Header = append(r.Header, line)
	}
	return r, from, nil
}

func (s *story) http(ctx context.Context, args []string) (string, error) {
	r, from, err := request(args)
	if err != nil {
		return "", err
	}
	client := harness.Client{Addr: s.lab.Options.Listen, From: from}
	defer client.Close()
	resp, err := client.Do(ctx, r)
	if err != nil {
		return "", err
	}
	return resp.String(), nil
}

func (s *story) burst(ctx context.Context, args []string) (string, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return "", err
	}
	r, from, err := request(args[1:])
	if err != nil {
		return "", err
	}
	body := r.Body
	return attempts(ctx, s.lab, from, n, func(i int) harness.Request {
		r.Body = strings.ReplaceAll(body, "{n}", strconv.Itoa(i))
		return r
	})
}

// attempts sends n requests from one address, one after another, and returns the statuses in order: 20 x 200, 5 x 429.
func attempts(ctx context.Context, lab *harness.Lab, from string, n int, request func(i int) harness.Request) (string, error) {
	client := harness.Client{Addr: lab.Options.Listen, From: from}
	defer client.Close()
	var parts []string
	last, count := 0, 0
	for i := range n {
		resp, err := client.Do(ctx, request(i))
		if err != nil {
			return "", err
		}
		if resp.Status != last {
			parts = append(parts, "")
			last, count = resp.Status, 0
		}
		count++
		parts[len(parts)-1] = fmt.Sprintf("%d x %d", count, last)
	}
	return strings.Join(parts, ", "), nil
}

func (s *story) crowd(ctx context.Context, args []string) (string, error) {
	clients, err1 := strconv.Atoi(args[0])
	calls, err2 := strconv.Atoi(args[1])
	r, _, err3 := request(args[2:])
	if err := errors.Join(err1, err2, err3); err != nil {
		return "", err
	}
	return harness.Crowd(ctx, s.lab.Options.Listen, clients, calls, r).String(), nil
}

func (s *story) spread(ctx context.Context, args []string) (string, error) {
	n, err1 := strconv.Atoi(args[0])
	r, _, err2 := request(args[1:])
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	return harness.Spread(ctx, s.lab.Options.Listen, n, r).String(), nil
}

func (s *story) loadCommand(_ context.Context, args []string) (string, error) {
	if args[0] == "stop" {
		tally := s.load.Stop()
		s.load = nil
		return tally.String(), nil
	}
	clients, err1 := strconv.Atoi(args[0])
	r, _, err2 := request(args[1:])
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	s.load = harness.StartLoad(s.lab.Options.Listen, clients, r)
	return "", nil
}
