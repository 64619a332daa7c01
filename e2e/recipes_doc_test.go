package e2e_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// recipe is one section of docs/recipes.md.
type recipe struct {
	name     string
	policies string           // a file
	parts    []map[string]any // of an Envoy configuration
	rows     []recipeRow
}

// recipeRow is a line of a recipe's table: what is asked, how often, and what the answer is each time.
type recipeRow struct {
	text          string
	request       harness.Request
	times         int
	from          string // address; empty: any
	soon          bool   // not at once, but before long
	status        int
	with, without []string // header fields: name, or name and value
}

// partKeys are what a part of a configuration may begin with.
var partKeys = map[string]bool{
	"admin": true, "static_resources": true, "http_filters": true, "routes": true, "rate_limits": true, "clusters": true,
	"use_remote_address": true, "xff_num_trusted_hops": true,
}

// parseRecipes reads the document. Every section with code is a recipe, and has policies and requests.
func parseRecipes(text string) ([]recipe, error) {
	var all []recipe
	for _, section := range strings.Split("\n"+text, "\n## ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		r := recipe{name: strings.TrimSpace(name)}
		if err := r.parse(body); err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		all = append(all, r)
	}
	return all, nil
}

func (r *recipe) parse(body string) error {
	for i, piece := range strings.Split(body, "```") {
		code, ok := strings.CutPrefix(piece, "yaml\n")
		switch {
		case i%2 == 1 && !ok:
			return fmt.Errorf("a block that is not YAML: %.20q", piece)
		case i%2 == 1:
			if err := r.code(code); err != nil {
				return err
			}
		default:
			if err := r.prose(piece); err != nil {
				return err
			}
		}
	}
	if r.policies == "" || len(r.rows) == 0 {
		return errors.New("no policies, or no requests")
	}
	return nil
}

func (r *recipe) code(text string) error {
	var content map[string]any
	if err := yaml.Unmarshal([]byte(text), &content); err != nil {
		return err
	}
	if _, ok := content["policies"]; ok {
		r.policies = text
		return nil
	}
	for key := range content {
		if !partKeys[key] {
			return fmt.Errorf("nobody knows where %q belongs", key)
		}
	}
	r.parts = append(r.parts, content)
	return nil
}

func (r *recipe) prose(text string) error {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 2 {
			continue
		}
		row, err := parseRow(cells[0], cells[1])
		if err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
		row.text = line
		r.rows = append(r.rows, row)
	}
	return nil
}

var (
	span    = regexp.MustCompile("`([^`]*)`")
	times   = regexp.MustCompile(`(\d+) times`)
	from    = regexp.MustCompile(`from (\S+)`)
	answers = regexp.MustCompile(`^\s*(\d{3})(?: with ([^|]*?))?(?: without ([^|]*?))?\s*$`)
	filler  = regexp.MustCompile(`^[\s,]*(with|and|soon)?[\s,]*$`)
)

func parseRow(asked, answered string) (recipeRow, error) {
	row := recipeRow{times: 1}
	spans := span.FindAllStringSubmatch(asked, -1)
	method, target, ok := strings.Cut(spans[0][1], " ")
	if !ok {
		return row, errors.New("a request is a method and a path")
	}
	row.request = harness.Request{Method: method, Target: target}
	for _, s := range spans[1:] {
		if strings.HasPrefix(s[1], "{") {
			row.request.Body = s[1]
			continue
		}
		row.request.Header = append(row.request.Header, strings.ReplaceAll(s[1], "TOKEN", token()))
	}
	words := span.ReplaceAllString(asked, "\n")
	if m := times.FindStringSubmatch(words); m != nil {
		row.times, _ = strconv.Atoi(m[1])
	}
	if m := from.FindStringSubmatch(words); m != nil {
		row.from = m[1]
	}
	row.soon = strings.Contains(words, "soon")
	for _, rest := range strings.Split(from.ReplaceAllString(times.ReplaceAllString(words, ""), ""), "\n") {
		if !filler.MatchString(rest) {
			return row, fmt.Errorf("nobody knows what %q asks", rest)
		}
	}
	m := answers.FindStringSubmatch(answered)
	if m == nil {
		return row, errors.New("an answer is a status, and header fields with or without it")
	}
	row.status, _ = strconv.Atoi(m[1])
	row.with, row.without = insides(m[2]), insides(m[3])
	return row, nil
}

// insides are what stands between backquotes.
func insides(text string) []string {
	var all []string
	for _, s := range span.FindAllStringSubmatch(text, -1) {
		all = append(all, s[1])
	}
	return all
}
