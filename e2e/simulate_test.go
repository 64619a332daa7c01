package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// documentedFormat finds the access log's format in docs/simulate.md.
var documentedFormat = regexp.MustCompile("(?s)```json\n({\n *\"start_time\".*?\n})\n```")

// withAccessLog makes a copy of the shipped Envoy configuration that also writes an access log in the documented format to file.
func (s *story) withAccessLog(file string) (string, error) {
	shipped, err := os.ReadFile("../envoy/envoy.yaml")
	if err != nil {
		return "", err
	}
	document, err := os.ReadFile("../docs/simulate.md")
	if err != nil {
		return "", err
	}
	found := documentedFormat.FindSubmatch(document)
	if found == nil {
		return "", errors.New("docs/simulate.md has no format of an access log")
	}
	logger, err := json.Marshal(map[string]any{ // JSON is YAML
		"name": "envoy.access_loggers.file",
		"typed_config": map[string]any{
			"@type":      "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
			"path":       s.dir + "/" + file,
			"log_format": map[string]any{"json_format": json.RawMessage(found[1])},
		},
	})
	if err != nil {
		return "", err
	}
	const list = "          access_log:\n"
	before, after, ok := strings.Cut(string(shipped), list)
	if !ok {
		return "", errors.New("the Envoy configuration has no access log")
	}
	path := s.dir + "/with-log.yaml"
	return path, os.WriteFile(path, []byte(before+list+"          - "+string(logger)+"\n"+after), 0o600)
}

func (s *story) simulate(ctx context.Context, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, binaries.service, append([]string{"simulate"}, args...)...)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("simulate: %w\n%s", err, out)
	}
	return string(out), nil
}
