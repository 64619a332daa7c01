package bench

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

//go:embed scenarios/*.yaml
var shipped embed.FS

const suffix = ".yaml"

// Names are those of the scenarios that come with the program, sorted.
func Names() []string {
	entries, err := shipped.ReadDir("scenarios")
	if err != nil {
		panic(err) // they are compiled in
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), suffix))
	}
	slices.Sort(names)
	return names
}

// Text is the file of a scenario that comes with the program.
func Text(name string) (string, error) {
	text, err := shipped.ReadFile("scenarios/" + name + suffix)
	if err != nil {
		hint := policy.DidYouMean(name, Names())
		if hint != "" {
			hint = " (" + hint + ")"
		}
		return "", fmt.Errorf("there is no scenario %q%s", name, hint)
	}
	return string(text), nil
}

// Open reads a scenario: one that comes with the program by its name, or a file by its path, which has a slash or ends in .yaml.
func Open(name string) (*Scenario, error) {
	if !strings.HasSuffix(name, suffix) && !strings.ContainsAny(name, `/\`) {
		text, err := Text(name)
		if err != nil {
			return nil, err
		}
		return Parse(name, policy.Text{Path: name + suffix, Data: []byte(text)})
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return Parse(strings.TrimSuffix(filepath.Base(name), suffix), policy.Text{Path: name, Data: data})
}
