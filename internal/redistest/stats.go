package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Info returns the fields of one section of INFO, or of all with the section "everything".
func (s *Server) Info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.text(ctx, "INFO", section)
	if err != nil {
		return nil, err
	}
	return fields(text), nil
}

// text runs a command whose reply is a string.
func (s *Server) text(ctx context.Context, args ...any) (string, error) {
	reply, err := s.Do(ctx, args...)
	if err != nil {
		return "", err
	}
	text, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("redis %s: %v replied %v, no text", s.Addr(), args, reply)
	}
	return text, nil
}

// fields reads lines of "name:value".
func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// CommandStat is what a server has spent on one command.
type CommandStat struct {
	Calls       int64
	Usec        int64   // microseconds in all
	UsecPerCall float64 // microseconds
	Rejected    int64   // calls refused before they ran
	Failed      int64   // calls that ran and failed
}

// CommandStats returns what was spent on each command (lower-case names) since the start or [Server.ResetStats].
func (s *Server) CommandStats(ctx context.Context) (map[string]CommandStat, error) {
	info, err := s.Info(ctx, "commandstats")
	if err != nil {
		return nil, err
	}
	stats := map[string]CommandStat{}
	for name, text := range info {
		command, ok := strings.CutPrefix(name, "cmdstat_")
		if !ok {
			continue
		}
		var c CommandStat
		_, err := fmt.Sscanf(text, "calls=%d,usec=%d,usec_per_call=%g,rejected_calls=%d,failed_calls=%d",
			&c.Calls, &c.Usec, &c.UsecPerCall, &c.Rejected, &c.Failed)
		if err != nil {
			return nil, fmt.Errorf("%s:%s: %w", name, text, err)
		}
		stats[command] = c
	}
	return stats, nil
}

// ResetStats sets the counters of CommandStats to zero.
func (s *Server) ResetStats(ctx context.Context) error {
	_, err := s.Do(ctx, "CONFIG", "RESETSTAT")
	return err
}

// CPU returns the processor time that the server has used, user and system.
func (s *Server) CPU(ctx context.Context) (time.Duration, error) {
	info, err := s.Info(ctx, "cpu")
	if err != nil {
		return 0, err
	}
	var seconds float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		part, err := strconv.ParseFloat(info[name], 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		seconds += part
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// Time returns what the server takes for the time: its TIME.
func (s *Server) Time(ctx context.Context) (time.Time, error) {
	reply, err := s.Do(ctx, "TIME")
	if err != nil {
		return time.Time{}, err
	}
	var seconds, micros int64
	if _, err := fmt.Sscan(fmt.Sprintln(reply.([]any)...), &seconds, &micros); err != nil {
		return time.Time{}, fmt.Errorf("redis %s: TIME: %w", s.Addr(), err)
	}
	return time.Unix(seconds, micros*1000), nil
}
