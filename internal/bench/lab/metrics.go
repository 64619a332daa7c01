package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

var (
	decisionLine = regexp.MustCompile(`^envoy_rls_decisions_total\{.*source="([a-z-]+)".*\} ([0-9.e+]+)$`)
	bucketsLine  = regexp.MustCompile(`^envoy_rls_buckets ([0-9.e+]+)$`)
	heapLine     = regexp.MustCompile(`^# HeapAlloc = ([0-9]+)$`)
)

// decisions are how many buckets a service of ours has decided, by source.
func decisions(ctx context.Context, admin string) (map[string]int64, error) {
	sums := map[string]int64{}
	err := lines(ctx, "http://"+admin+"/metrics", decisionLine, func(found []string) error {
		n, err := strconv.ParseFloat(found[2], 64)
		sums[found[1]] += int64(n)
		return err
	})
	return sums, err
}

// Buckets is how many buckets a service of ours has in memory.
func (s *Side) Buckets(ctx context.Context) (n float64, err error) {
	err = lines(ctx, "http://"+s.Admin+"/metrics", bucketsLine, func(found []string) error {
		n, err = strconv.ParseFloat(found[1], 64)
		return err
	})
	return n, err
}

// Heap is how many bytes of the heap are alive: the service collects its garbage first.
func (s *Side) Heap(ctx context.Context) (n float64, err error) {
	err = lines(ctx, "http://"+s.Debug+"/debug/pprof/heap?gc=1&debug=1", heapLine, func(found []string) error {
		n, err = strconv.ParseFloat(found[1], 64)
		return err
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("%s does not tell its heap", s.Name)
	}
	return n, err
}

// lines calls found for each line of a page that matches.
func lines(ctx context.Context, url string, pattern *regexp.Regexp, found func([]string) error) error {
	page, err := get(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = page.Close() }() // only read
	in := bufio.NewScanner(page)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if match := pattern.FindStringSubmatch(strings.TrimSpace(in.Text())); match != nil {
			if err := found(match); err != nil {
				return fmt.Errorf("%s: %q: %w", url, match[0], err)
			}
		}
	}
	return in.Err()
}

func get(ctx context.Context, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	// A connection of its own: none is left open in the server that is measured.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return response.Body, nil
}
