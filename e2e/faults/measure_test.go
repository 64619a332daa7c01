package faults_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// runsEnv is how often TestMeasure measures each fault. Unset: not at all.
const runsEnv = "ENVOY_RLS_FAULTS_RUNS"

// measured is what a fault does to how long decisions take.
type measured struct {
	Fault   string  `json:"fault"`
	Runs    int     `json:"runs"` // each number is the median over so many
	Failed  p99s    `json:"failedShard"`
	Healthy p99s    `json:"healthyShards"`
	Again   float64 `json:"againMs"`        // from when the store can decide again until it does
	Stalled float64 `json:"stalledPercent"` // of the time: the machine itself
}

type p99s struct {
	Without float64 `json:"p99WithoutMs"`
	With    float64 `json:"p99WithMs"`
}

// episode is when a fault was there: once, or again and again.
type episode struct {
	name  string
	spans []faults.Span
}

// fault is one of those that are measured, or several that one lab goes through.
type fault struct {
	open func(*testing.T) *lab
	mix  func(l *lab, n int) faults.Call
	// do makes the trouble, and returns when the store can decide again.
	do func(*lab, *faults.Load) []episode
}

// once is a fault that is there once.
func once(name string, open func(*testing.T) *lab, do func(*lab)) fault {
	return fault{open, everyMode, func(l *lab, load *faults.Load) []episode {
		s := faults.Span{From: load.Mark(name)}
		do(l)
		s.To = load.Mark("the store can decide again")
		return []episode{{name, []faults.Span{s}}}
	}}
}

// everyMode asks about all shards and failure modes.
func everyMode(l *lab, n int) faults.Call { return l.mix(n) }

// resharded has slots move, each of which stays half moved for a moment.
func resharded() fault {
	const slots = 10
	return fault{
		func(t *testing.T) *lab { return newLab(t, labSetup{cluster: shared.Cluster(t), policies: paired}) },
		func(l *lab, n int) faults.Call { return l.pairs(n) },
		func(l *lab, load *faults.Load) []episode {
			s := faults.Span{From: load.Mark("slots move")}
			l.moveAway(load, slots)
			s.To = load.Mark("moved")
			time.Sleep(after)
			l.moveBack(load, slots) // the cluster is used again
			return []episode{{fmt.Sprint(slots, " slots move while in use, each half moved for 100 ms"), []faults.Span{s}}}
		},
	}
}

// flapping stops and goes on.
func flapping() fault {
	return fault{patientLab, everyMode, func(l *lab, load *faults.Load) []episode {
		return []episode{{"flapping: 5 times 2 s stopped, 2 s going", l.flap(load, 5, 2*time.Second, 2*time.Second)}}
	}}
}

// spoilt is each of the ways in which a connection can be spoilt, one after the other.
func spoilt() fault {
	var proxy *redistest.Proxy
	return fault{
		func(t *testing.T) (l *lab) {
			l, proxy = labBehindProxies(t)
			return l
		},
		everyMode,
		func(_ *lab, load *faults.Load) (all []episode) {
			for _, way := range spoils() {
				s := faults.Span{From: load.Mark(way.name)}
				way.do(proxy)
				time.Sleep(time.Second)
				proxy.Heal()
				s.To = load.Mark("healed")
				all = append(all, episode{way.name, []faults.Span{s}})
				time.Sleep(after) // the next one finds the breaker closed
			}
			return all
		},
	}
}

// without is how long decisions are timed before a fault.
const without = 3 * time.Second

// everyFault is what is measured.
func everyFault() []fault {
	ordinary := func(t *testing.T) *lab { return newLab(t, labSetup{cluster: shared.Cluster(t)}) }
	return []fault{
		once("none", ordinary, func(*lab) { time.Sleep(without) }),
		once("kill -9 of a primary, until its replica is promoted", ordinary, (*lab).killVictim),
		once("the same, its clock an hour ahead of the replica's", labAhead, (*lab).killVictim),
		once("SIGSTOP of a primary for 700 ms", ordinary, (*lab).pauseVictim),
		flapping(),
		once("the primary's zone cut off, until the replica is promoted", partitionLab, (*lab).cutOff),
		resharded(),
		spoilt(),
	}
}

// TestMeasure prints, as a table and as JSON, how long decisions take without and with each fault. It is for a machine that does nothing else:
//
//	ENVOY_RLS_FAULTS_RUNS=5 go test -count=1 -v -timeout 30m -run TestMeasure ./faults
func TestMeasure(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv(runsEnv))
	if err != nil || runs < 1 {
		t.Skipf("measures if %s is a number of runs", runsEnv)
	}
	var all []measured
	for n, fault := range everyFault() {
		of := map[string][]measured{}
		var names []string // in order
		for run := range runs {
			t.Run(fmt.Sprint(n+1, " ", run+1), func(t *testing.T) {
				for _, m := range measure(t, fault) {
					if of[m.Fault] == nil {
						names = append(names, m.Fault)
					}
					of[m.Fault] = append(of[m.Fault], m)
				}
			})
		}
		for _, name := range names {
			all = append(all, medians(of[name]))
		}
	}
	report(t, all)
}

// measure makes one run: a while without trouble, the trouble, and a while after it.
func measure(t *testing.T, f fault) []measured {
	l := f.open(t)
	l.warm()
	load := l.start(func(n int) faults.Call { return f.mix(l, n) })
	time.Sleep(500 * time.Millisecond) // the first calls of all pay for others
	began := load.Now()
	time.Sleep(without)
	calm := []faults.Span{{From: began, To: load.Now()}}
	troubles := f.do(l, load)
	time.Sleep(after)
	r := load.Stop()
	l.show(r)
	l.require(r.CheckAnswered())
	p99 := func(spans []faults.Span, on ...int) float64 {
		var during []*faults.Decision
		for _, s := range spans {
			during = append(during, r.Select(s, on...)...)
		}
		return milliseconds(faults.Quantile(during, 0.99))
	}
	var all []measured
	for _, d := range troubles {
		m := measured{
			Fault:   d.name,
			Failed:  p99s{Without: p99(calm, victim), With: p99(d.spans, victim)},
			Healthy: p99s{Without: p99(calm, others(victim)...), With: p99(d.spans, others(victim)...)},
			Stalled: 100 * r.Stalled(),
		}
		for _, s := range d.spans {
			m.Again = max(m.Again, milliseconds(r.Again(s.To, victim)))
		}
		all = append(all, m)
	}
	return all
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// medians are those of each number over the runs of one fault.
func medians(of []measured) measured {
	m := measured{Fault: of[0].Fault, Runs: len(of)}
	for to, from := range map[*float64]func(*measured) float64{
		&m.Failed.Without:  func(m *measured) float64 { return m.Failed.Without },
		&m.Failed.With:     func(m *measured) float64 { return m.Failed.With },
		&m.Healthy.Without: func(m *measured) float64 { return m.Healthy.Without },
		&m.Healthy.With:    func(m *measured) float64 { return m.Healthy.With },
		&m.Again:           func(m *measured) float64 { return m.Again },
		&m.Stalled:         func(m *measured) float64 { return m.Stalled },
	} {
		var values []float64
		for i := range of {
			values = append(values, from(&of[i]))
		}
		slices.Sort(values)
		*to = values[len(values)/2]
	}
	return m
}

// report prints what was measured and writes it to files.
func report(t *testing.T, all []measured) {
	t.Helper()
	var table strings.Builder
	table.WriteString("| fault | failed shard, without / with | healthy shards, without / with | decided by the store again after (ms) | machine stalled (%) |\n" +
		"|---|---|---|---|---|\n")
	for _, m := range all {
		fmt.Fprintf(&table, "| %s | %.1f / %.1f | %.1f / %.1f | %.0f | %.1f |\n",
			m.Fault, m.Failed.Without, m.Failed.With, m.Healthy.Without, m.Healthy.With, m.Again, m.Stalled)
	}
	text, err := json.MarshalIndent(all, "", "  ")
	require.NoError(t, err)
	for name, content := range map[string]string{"faults.md": table.String(), "faults.json": string(text) + "\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(t.ArtifactDir(), name), []byte(content), 0o600))
	}
	t.Logf("medians of %d runs\n%s\n%s", all[0].Runs, &table, text)
}
