package bench

import (
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
)

// Calls makes a scenario's calls. What it makes is envoy.service.ratelimit.v3.RateLimitRequest on the wire. Make one with [Scenario.Make].
type Calls struct {
	scenario *Scenario
	run      string
	seed     uint64
	weights  int
	bins     *bins
	next     atomic.Uint64 // of a sequence
}

// Make prepares the calls of one run. run is put where the scenario has {run}; seed decides which keys are drawn.
func (s *Scenario) Make(run string, seed uint64) *Calls {
	c := &Calls{scenario: s, run: run, seed: seed, bins: s.Keys.bins()}
	for i := range s.Calls {
		c.weights += s.Calls[i].Weight
	}
	return c
}

// maker makes the calls of one worker, and keeps count of them.
type maker struct {
	*Calls
	random *rand.Rand
	draw   func() uint64
	made   []uint64 // by the scenario's calls
	drawn  []uint64 // by bin

	descriptor, value []byte // scratch
}

func (c *Calls) maker(worker int) *maker {
	m := &maker{Calls: c, random: rand.New(rand.NewPCG(c.seed, uint64(worker)))}
	m.draw = c.scenario.Keys.drawer(m.random, &c.next)
	m.made, m.drawn = make([]uint64, len(c.scenario.Calls)), make([]uint64, len(c.bins.first))
	return m
}

// next makes a call. The bytes are the caller's.
func (m *maker) next() []byte {
	key, kind := m.draw(), m.kind()
	m.made[kind]++
	m.drawn[m.bins.find(key)]++
	return m.append(make([]byte, 0, 128), &m.scenario.Calls[kind], key)
}

func (m *maker) kind() int {
	if len(m.scenario.Calls) == 1 {
		return 0
	}
	n := m.random.IntN(m.weights)
	for i := range m.scenario.Calls {
		if n -= m.scenario.Calls[i].Weight; n < 0 {
			return i
		}
	}
	return 0
}

// The fields of the messages.
const (
	requestDomain, requestDescriptors, requestCost = 1, 2, 3
	descriptorEntries                              = 1
	entryKey, entryValue                           = 1, 2
)

func (m *maker) append(out []byte, c *Call, key uint64) []byte {
	out = protowire.AppendTag(out, requestDomain, protowire.BytesType)
	out = protowire.AppendString(out, m.scenario.Domain)
	for _, d := range c.Descriptors {
		m.descriptor = m.descriptor[:0]
		for i := range d {
			m.value = d[i].Value.Append(m.value[:0], m.run, key)
			size := fieldSize(len(d[i].Key)) + fieldSize(len(m.value))
			m.descriptor = protowire.AppendTag(m.descriptor, descriptorEntries, protowire.BytesType)
			m.descriptor = protowire.AppendVarint(m.descriptor, uint64(size))
			m.descriptor = protowire.AppendTag(m.descriptor, entryKey, protowire.BytesType)
			m.descriptor = protowire.AppendString(m.descriptor, d[i].Key)
			m.descriptor = protowire.AppendTag(m.descriptor, entryValue, protowire.BytesType)
			m.descriptor = protowire.AppendBytes(m.descriptor, m.value)
		}
		out = protowire.AppendTag(out, requestDescriptors, protowire.BytesType)
		out = protowire.AppendBytes(out, m.descriptor)
	}
	if c.Cost > 0 {
		out = protowire.AppendTag(out, requestCost, protowire.VarintType)
		out = protowire.AppendVarint(out, uint64(c.Cost))
	}
	return out
}

// fieldSize is how many bytes a field of n bytes takes, with a tag of one byte.
func fieldSize(n int) int { return 1 + protowire.SizeBytes(n) }
