package memorybackend

import (
	"fmt"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// Check walks all shards and says what does not fit together.
func (s *Store) Check() error {
	runs := int64(0)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		err := sh.check(&runs)
		sh.mu.Unlock()
		if err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
	}
	if used := s.runs.used.Load(); used != runs {
		return fmt.Errorf("%d runs counted, %d there", used, runs)
	}
	return nil
}

func (s *shard) check(runs *int64) error {
	held, closed, logs := 0, 0, map[uint32]bool{}
	for i := range s.slots {
		n := &s.slots[i]
		if n.kind == 0 {
			continue
		}
		held++
		if n.closed {
			closed++
		}
		if s.find(n.id) != i {
			return fmt.Errorf("slot %d is not found", i)
		}
		if n.kind == algorithm.SlidingLog {
			if logs[n.log] {
				return fmt.Errorf("log %d belongs to two", n.log)
			}
			logs[n.log] = true
			*runs += int64(s.logs[n.log].Room())
		}
	}
	if held != s.held || closed != s.closed || held > s.most {
		return fmt.Errorf("held %d of at most %d, counted %d; closed %d, counted %d", held, s.most, s.held, closed, s.closed)
	}
	if held == len(s.slots) {
		return fmt.Errorf("no free slot among %d", held)
	}
	if len(logs)+len(s.freeLogs) != len(s.logs) {
		return fmt.Errorf("%d logs in use and %d free, but %d in all", len(logs), len(s.freeLogs), len(s.logs))
	}
	return nil
}
