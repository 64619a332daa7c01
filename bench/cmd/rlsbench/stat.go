package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc: USER_HZ, which is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// parseStat gives the user and system time in the text of a /proc/PID/stat file: its fields 14 and 15 (proc(5)).
func parseStat(stat string) (time.Duration, error) {
	// Field 2 is the command in parentheses, and may itself hold blanks and parentheses.
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) < 13 {
		return 0, fmt.Errorf("no process times in %q", stat)
	}
	var sum time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process times: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// quantile gives the value below which a share q of the sorted values lies; 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// median gives the middle value; of an even number the mean of both middle ones.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
