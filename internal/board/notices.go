package board

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

const (
	mostNotices = 128 << 10 // bytes: some hundred notices, and twice as many with short keys
	noticesLife = time.Hour
	noticeID    = 16
)

// Notify tells all instances of a change, this one at once. The error says why Redis did not take it: then the others may not learn it.
func (b *Board) Notify(ctx context.Context, n Notice) error {
	b.options.OnNotice(n)
	var random [noticeID / 2]byte
	_, _ = rand.Read(random[:]) // never fails: it ends the program instead
	id := hex.EncodeToString(random[:])
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[id] = true
	kind := "put"
	if n.Refund {
		kind = "refund"
	}
	line := fmt.Sprintf("%s %s %s %s", id, kind, strconv.FormatFloat(n.Remaining, 'g', -1, 64), n.Key)
	_, err := b.options.Redis.Run(ctx, appendScript, []string{noticesKey}, line, mostNotices, noticesLife.Milliseconds())
	return err
}

// takeNoticesLocked tells of the notices that are new. They are told apart by their IDs, since a Redis that takes another one's place
// may have fewer of them, or others.
func (b *Board) takeNoticesLocked(version, all string) error {
	first := !b.started
	b.started = true
	if version == b.heard {
		return nil
	}
	b.heard = version
	if all == "" {
		clear(b.known)
		return nil
	}
	if len(all) < versionSize || len(all) > mostNotices+versionSize {
		return fmt.Errorf("the notices: %w", ErrUnknown)
	}
	known, faulty := map[string]bool{}, false
	for line := range strings.Lines(all[versionSize:]) {
		id, n, ok := readNotice(strings.TrimSuffix(line, "\n"))
		if !ok {
			faulty = true
			continue
		}
		if !first && !b.known[id] && !known[id] {
			b.options.OnNotice(n)
		}
		known[id] = true
	}
	b.known = known
	if faulty {
		return fmt.Errorf("the notices: %w", ErrUnknown)
	}
	return nil
}

func readNotice(line string) (id string, n Notice, ok bool) {
	fields := strings.Split(line, " ")
	if len(fields) != 4 || len(fields[0]) != noticeID {
		return "", n, false
	}
	remaining, err := strconv.ParseFloat(fields[2], 64)
	if err != nil || math.IsNaN(remaining) || math.Abs(remaining) > 1e15 {
		return "", n, false
	}
	if fields[1] != "put" && fields[1] != "refund" {
		return "", n, false
	}
	n.Key, ok = policy.KeyOf([]byte(fields[3]))
	n.Remaining, n.Refund = remaining, fields[1] == "refund"
	return fields[0], n, ok
}
