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
)

// runsEnv is how often TestMeasure measures each fault. Unset: not at all.
const runsEnv = "ENVOY_RLS_FAULTS_RUNS"

// measured is what a fault does to how long decisions take, each number the median over the runs.
type measured struct {
	Fault   string  `json:"fault"`
	Runs    int     `json:"runs"`
	Failed  p99s    `json:"failedShard"`
	Healthy p99s    `json:"healthyShards"`
	Again   float64 `json:"againMs"`        // from when the store can decide again until it does
	Stalled float64 `json:"stalledPercent"` // of the time: the machine itself
}

type p99s struct {
	Without float64 `json:"p99WithoutMs"`
	With    float64 `json:"p99WithMs"`
}

// TestMeasure prints, as a table and as JSON, how long decisions take without and with a fault. It is for a machine that does nothing else:
//
//	ENVOY_RLS_FAULTS_RUNS=5 go test -count=1 -v -run TestMeasure ./faults
func TestMeasure(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv(runsEnv))
	if err != nil || runs < 1 {
		t.Skipf("measures if %s is a number of runs", runsEnv)
	}
	const lasts = 3 * time.Second
	var all []measured
	for _, fault := range []struct {
		name string
		// do makes the trouble and returns when the store can decide again.
		do func(*lab)
	}{
		{"none", func(*lab) { time.Sleep(lasts) }},
		{"kill -9 of a primary, until its replica is promoted", (*lab).killVictim},
		{"SIGSTOP of a primary for 700 ms", (*lab).pauseVictim},
	} {
		m := measured{Fault: fault.name}
		var of []measured
		for n := range runs {
			t.Run(fmt.Sprint(fault.name, " ", n+1), func(t *testing.T) { of = append(of, measure(t, lasts, fault.do)) })
		}
		m.Runs = len(of)
		for to, from := range map[*float64]func(measured) float64{
			&m.Failed.Without:  func(m measured) float64 { return m.Failed.Without },
			&m.Failed.With:     func(m measured) float64 { return m.Failed.With },
			&m.Healthy.Without: func(m measured) float64 { return m.Healthy.Without },
			&m.Healthy.With:    func(m measured) float64 { return m.Healthy.With },
			&m.Again:           func(m measured) float64 { return m.Again },
			&m.Stalled:         func(m measured) float64 { return m.Stalled },
		} {
			*to = median(of, from)
		}
		all = append(all, m)
	}
	report(t, all)
}

// measure makes one run: as long without the fault as given, with it, and a while after it.
func measure(t *testing.T, without time.Duration, do func(*lab)) measured {
	l := newLab(t, labSetup{cluster: shared.Cluster(t)})
	l.warm()
	load := l.start(l.mix)
	time.Sleep(500 * time.Millisecond) // the first calls of all pay for others
	began := load.Now()
	time.Sleep(without - before)
	r, s := l.suffer(load, "fault", func() { do(l) })
	l.show(r)
	l.require(r.CheckAnswered())
	p99 := func(s faults.Span, on ...int) float64 { return milliseconds(faults.Quantile(r.Select(s, on...), 0.99)) }
	calm := faults.Span{From: began, To: s.From}
	return measured{
		Failed:  p99s{Without: p99(calm, victim), With: p99(s, victim)},
		Healthy: p99s{Without: p99(calm, others(victim)...), With: p99(s, others(victim)...)},
		Again:   milliseconds(r.Again(s.To, victim)),
		Stalled: 100 * r.Stalled(),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func median(of []measured, value func(measured) float64) float64 {
	var values []float64
	for _, m := range of {
		values = append(values, value(m))
	}
	if len(values) == 0 {
		return -1
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// report prints what was measured and writes it to files.
func report(t *testing.T, all []measured) {
	t.Helper()
	var table strings.Builder
	table.WriteString("| fault | runs | p99 of the failed shard without / with (ms) | of the healthy shards without / with (ms) | " +
		"by the store again after (ms) | machine stalled (%) |\n|---|---|---|---|---|---|\n")
	for _, m := range all {
		fmt.Fprintf(&table, "| %s | %d | %.1f / %.1f | %.1f / %.1f | %.0f | %.1f |\n",
			m.Fault, m.Runs, m.Failed.Without, m.Failed.With, m.Healthy.Without, m.Healthy.With, m.Again, m.Stalled)
	}
	text, err := json.MarshalIndent(all, "", "  ")
	require.NoError(t, err)
	for name, content := range map[string]string{"faults.md": table.String(), "faults.json": string(text) + "\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(t.ArtifactDir(), name), []byte(content), 0o600))
	}
	t.Logf("\n%s\n%s", &table, text)
}
