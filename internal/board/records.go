package board

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// MaxRecord is how many bytes an instance may say of itself.
	MaxRecord = 1 << 10
	// MaxLine is how many bytes a line of the audit may have.
	MaxLine     = 2 << 10
	mostAudit   = 512 << 10
	auditLife   = 30 * 24 * time.Hour
	recordsOnce = 128
	mostID      = 32
)

var errTooLong = errors.New("too long")

func (b *Board) publish(ctx context.Context) error {
	record := b.options.Record()
	if len(record) > MaxRecord {
		return fmt.Errorf("the record of this instance: %w", errTooLong)
	}
	_, err := b.options.Redis.Run(ctx, setScript, []string{recordKey + b.options.ID}, record, recordLife.Milliseconds())
	return err
}

// Records are what the instances with those IDs say of themselves; those that say nothing are left out.
func (b *Board) Records(ctx context.Context, ids []string) (map[string]string, error) {
	records := map[string]string{}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return len(id) > mostID })
	for some := range slices.Chunk(ids, recordsOnce) {
		keys := make([]string, len(some))
		for i, id := range some {
			keys[i] = recordKey + id
		}
		reply, err := b.options.Redis.Run(ctx, getScript, keys, MaxRecord)
		if err != nil {
			return nil, err
		}
		fields, ok := reply.([]any)
		if !ok || len(fields) != len(some) {
			return nil, errReply
		}
		for i, f := range fields {
			if record := text(f); record != "" {
				records[some[i]] = record
			}
		}
	}
	return records, nil
}

// Log adds a line to what all instances have of what operators have done.
func (b *Board) Log(ctx context.Context, line []byte) error {
	if len(line) > MaxLine {
		return fmt.Errorf("a line of the audit: %w", errTooLong)
	}
	_, err := b.options.Redis.Run(ctx, appendScript, []string{auditKey}, line, mostAudit, auditLife.Milliseconds())
	return err
}

// Lines are those that were logged, the newest first. The oldest are forgotten.
func (b *Board) Lines(ctx context.Context) ([]string, error) {
	reply, err := b.options.Redis.Run(ctx, getScript, []string{auditKey}, mostAudit+versionSize)
	if err != nil {
		return nil, err
	}
	fields, ok := reply.([]any)
	if !ok || len(fields) != 1 {
		return nil, errReply
	}
	all := text(fields[0])
	if len(all) < versionSize {
		return nil, nil
	}
	var lines []string
	for line := range strings.Lines(all[versionSize:]) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines, nil
}
