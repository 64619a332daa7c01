package board

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

const (
	// listLife is how long the list is kept after its last change: an instance that was away for less learns what was unblocked.
	listLife     = blocklist.Longest
	mostList     = 16 << 20 // bytes
	mostPolicyID = 256
	versionSize  = 16
)

// ErrUnknown is in the chain of an error about something in Redis that was left out, since it is not what instances write there.
var ErrUnknown = errors.New("something in Redis is not understood and left out")

// blockLine is a line of the list.
type blockLine struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	Since  int64  `json:"since"` // milliseconds since 1970
	Until  int64  `json:"until"`
	Reason string `json:"reason"`
	Actor  string `json:"actor"`
}

func encode(blocks []blocklist.Block) ([]byte, error) {
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	lines.SetEscapeHTML(false)
	for _, b := range blocks {
		err := lines.Encode(blockLine{b.PolicyID, b.Key, b.Since.UnixMilli(), b.Until.UnixMilli(), b.Reason, b.Actor})
		if err != nil {
			return nil, err
		}
	}
	if out.Len() > mostList {
		return nil, fmt.Errorf("the list of blocks would take %d bytes, more than %d", out.Len(), mostList)
	}
	return out.Bytes(), nil
}

// decode reads the list, with its version. What is not understood is left out.
func decode(list string) ([]blocklist.Block, error) {
	if list == "" {
		return nil, nil
	}
	if len(list) < versionSize || len(list) > mostList+versionSize {
		return nil, fmt.Errorf("the list of blocks: %w", ErrUnknown)
	}
	var blocks []blocklist.Block
	var faulty bool
	latest := time.Now().Add(blocklist.Longest + time.Hour) // clocks differ
	for line := range strings.Lines(list[versionSize:]) {
		b, ok := decodeBlock([]byte(line), latest)
		if !ok || len(blocks) == blocklist.Most {
			faulty = true
			continue
		}
		blocks = append(blocks, b)
	}
	if faulty {
		return blocks, fmt.Errorf("the list of blocks: %w", ErrUnknown)
	}
	return blocks, nil
}

func decodeBlock(line []byte, latest time.Time) (b blocklist.Block, ok bool) {
	var l blockLine
	if json.Unmarshal(line, &l) != nil {
		return b, false
	}
	if _, ok := policy.KeyOf([]byte(l.Key)); !ok || len(l.Policy) > mostPolicyID || len(l.Reason) > blocklist.MaxReason || len(l.Actor) > blocklist.MaxActor {
		return b, false
	}
	b = blocklist.Block{
		PolicyID: l.Policy, Key: l.Key, Since: time.UnixMilli(l.Since), Until: time.UnixMilli(l.Until),
		Reason: blocklist.Clean(l.Reason, blocklist.MaxReason), Actor: blocklist.Clean(l.Actor, blocklist.MaxActor),
	}
	return b, !b.Until.After(latest)
}
