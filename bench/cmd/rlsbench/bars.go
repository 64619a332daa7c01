package main

import (
	_ "embed"
	"fmt"
	"strconv"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

//go:embed bars.yaml
var barsFile []byte

// limit is what a figure must not be above.
type limit struct{ most, band float64 }

// limits are those of a row, by what is measured.
type limits map[string]limit

// The figures that have limits.
const (
	ofServer   = "server"
	ofEmpty    = "empty"
	ofOneByOne = "one by one"
	ofUnmerged = "unmerged"
	ofScripts  = "scripts"
	ofP99      = "p99 ms"
	ofBytes    = "bytes"
	ofHash     = "hash"
	ofSpread   = "spread"
)

// readBars reads the limits of all rows. What is not of the form is an error: a bar that nobody holds would be worse than none.
func readBars(text []byte) (map[string]limits, error) {
	root, err := policy.ParseDocument(policy.Text{Path: "bars.yaml", Data: text}, false)
	if err != nil {
		return nil, err
	}
	known := []string{ofServer, ofEmpty, ofOneByOne, ofUnmerged, ofScripts, ofP99, ofBytes, ofHash, ofSpread}
	all := map[string]limits{}
	var faults policy.Faults
	for _, row := range root.Fields {
		all[row.Name] = limits{}
		faults = append(faults, row.Value.CheckFields("a row", known)...)
		for _, f := range row.Value.Fields {
			faults = append(faults, f.Value.CheckFields("a limit", []string{"most", "band"})...)
			most, err1 := strconv.ParseFloat(f.Value.Get("most").String(), 64)
			band, err2 := strconv.ParseFloat(f.Value.Get("band").String(), 64)
			if err1 != nil || err2 != nil || most <= 0 || band < 0 {
				faults = append(faults, policy.Fault{Pos: f.Pos, Message: "write {most: 1.2, band: 1.8}"})
			}
			all[row.Name][f.Name] = limit{most, band}
		}
	}
	return all, policy.Quote(faults, policy.Text{Path: "bars.yaml", Data: text})
}

// bar is a limit with what was measured.
type bar struct {
	Row  string  `json:"row"`
	What string  `json:"what"`
	Got  float64 `json:"got"`
	Most float64 `json:"most"`
	Met  bool    `json:"met"`

	band float64
}

func newBar(row, what string, got float64, l limit) bar {
	return bar{Row: row, What: what, Got: got, Most: l.most, Met: got <= l.most, band: l.band}
}

// inBand reports whether the short form accepts it.
func (b bar) inBand() bool { return b.band == 0 || b.Got <= b.band }

// explained are the figures in words.
func explained(what string) string {
	return map[string]string{
		ofServer:   "CPU per call, of the floor's",
		ofEmpty:    "Redis CPU per call, of an empty script's",
		ofOneByOne: "Redis CPU per call, of single calls'",
		ofUnmerged: "Redis CPU per call, of unmerged calls'",
		ofScripts:  "scripts per call",
		ofP99:      "p99 above the floor's, ms",
		ofBytes:    "bytes of heap per live bucket",
		ofHash:     "memory in Redis, of a hash's",
		ofSpread:   "largest CPU per call, of the smallest",
	}[what]
}

// String says what was measured and whether that is met.
func (b bar) String() string {
	verdict := "MISSED"
	if b.Met {
		verdict = "met"
	}
	return fmt.Sprintf("%s: %s: %.4g, at most %.4g: %s", b.Row, explained(b.What), b.Got, b.Most, verdict)
}
