package archtest_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// library says which modules somebody gets who imports a package of the library, direct and indirect ones.
var library = map[string][]string{
	"pkg/ratelimit":     {yaml},
	"pkg/memorybackend": {yaml},
	"pkg/fallback":      {yaml},
	"pkg/rejectcache":   {yaml},
	"pkg/rlheaders":     {yaml, fields},
	"pkg/policysource":  {yaml, "github.com/fsnotify/fsnotify", "golang.org/x/sys"},
	"pkg/httplimit":     {yaml, fields},
	"pkg/idempotency":   {fields},
	"pkg/grpclimit": {
		yaml, fields, "google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
		"golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
	},
	"pkg/redisbackend":           {yaml, "github.com/redis/go-redis/v9", "github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys"},
	"pkg/redislimit":             {yaml, "github.com/redis/go-redis/v9", "github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys"},
	"pkg/idempotency/redisstore": {fields, "github.com/redis/go-redis/v9", "github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys"},
}

const (
	yaml   = "github.com/goccy/go-yaml"
	fields = "github.com/dunglas/httpsfv"
)

// TestLibraryStaysLight fails where a package of the library comes to bring a module along that its users did not ask for: gRPC,
// Envoy's messages, Prometheus, a database driver, or Redis where nobody said Redis.
func TestLibraryStaysLight(t *testing.T) {
	for pkg, allowed := range library {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			got := modulesOf(t, pkg)
			require.NotEmpty(t, got, "every package needs one: the reader of the list is wrong")
			for _, mod := range got {
				require.Contains(t, allowed, mod, "%s brings it along", pkg)
			}
		})
	}
}

// modulesOf lists the modules, apart from this one, that a package is built from.
func modulesOf(t *testing.T, pkg string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./"+pkg)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	require.NoError(t, err)
	mods := strings.Fields(string(out))
	slices.Sort(mods)
	return slices.DeleteFunc(slices.Compact(mods), func(mod string) bool { return mod == module })
}
