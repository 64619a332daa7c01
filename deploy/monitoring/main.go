// Command monitoring writes what is made from code of the dashboard and of the tests of the alerts. Run it in this folder after a change:
//
//	go run .
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/goccy/go-yaml"
)

// The files, from this folder.
const (
	dashboardFile  = "../grafana/dashboard.json"
	rulesFile      = "../prometheus/rules.yaml"
	rulesTestsFile = "../prometheus/rules_test.yaml"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

func run() error {
	board, err := dashboardJSON()
	if err != nil {
		return err
	}
	if err := os.WriteFile(dashboardFile, board, 0o644); err != nil {
		return err
	}
	rules, err := readRules(rulesFile)
	if err != nil {
		return err
	}
	tests, err := rulesTests(rules, alertCases)
	if err != nil {
		return err
	}
	return os.WriteFile(rulesTestsFile, tests, 0o644)
}

func dashboardJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(newBoard())
	return b.Bytes(), err
}

// rule is a recording or an alerting rule of Prometheus.
type rule struct {
	Record      string            `yaml:"record"`
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func readRules(path string) ([]rule, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all, nil
}
