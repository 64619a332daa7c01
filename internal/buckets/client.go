package buckets

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/envoy-rls/envoy-rls/internal/adminhttp"
)

// Question is what a person asks for, as the bodies of requests have it.
type Question = question

// Which says which bucket is meant.
type Which = which

// Ask has a service carry out an action. It waits for 10 seconds at most.
func Ask(ctx context.Context, client adminhttp.Client, action Action, q *Question) (*Report, error) {
	var r Report
	if err := client.Post(ctx, Path+string(action), q, &r, maxBytes); err != nil {
		return nil, err
	}
	return &r, nil
}

// ReadToken gives the first token of a file; as a line of the service's own file it may have a name before it. It quotes nothing of the file in errors.
func ReadToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 0 && !strings.HasPrefix(fields[0], "#") {
			return fields[len(fields)-1], nil
		}
	}
	return "", fmt.Errorf("%s: there is no token in it", path)
}
