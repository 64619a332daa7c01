package algorithm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

func TestClock(t *testing.T) {
	steps := []struct {
		name         string
		time         int64
		want, offset int64
	}{
		{"in step", 1000, 1000, 0},
		{"a step back stands still once", 400, 1000, 600},
		{"and goes on at the new pace", 500, 1100, 600},
		{"another step back", 100, 1100, 1000},
		{"on again", 150, 1150, 1000},
		{"a step forward that has not caught up is time like any other", 900, 1900, 1000},
		{"not yet", 1899, 2899, 1000},
		{"caught up", 2899, 2899, 0},
		{"in step again", 2900, 2900, 0},
		{"before the origin", -50, 2900, 2950},
		{"still before it", -40, 2910, 2950},
	}
	var c algorithm.Clock
	for _, s := range steps {
		require.Equal(t, s.want, c.Now(s.time), s.name)
		c = c.At(s.time)
		require.Equal(t, algorithm.Clock{Last: s.want, Offset: s.offset}, c, s.name)
	}
}

func TestClockNeverRunsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c algorithm.Clock
		for _, time := range rapid.SliceOf(rapid.Int64Range(-1e15, 1e15)).Draw(t, "times") {
			next := c.At(time)
			if next.Last < c.Last || next.Offset < 0 {
				t.Fatalf("%+v at %d: got %+v", c, time, next)
			}
			if again := next.At(time); again != next {
				t.Fatalf("the same time twice: got %+v, want %+v", again, next)
			}
			c = next
		}
	})
}
