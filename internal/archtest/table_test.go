package archtest_test

// layers is the package tree. An import may only point to a smaller layer, so that no package can come to depend on one
// that is built upon it, and no two on one shelf on each other. A new package needs a row here.
var layers = map[string]int{
	"pkg/algorithm": 0,

	"pkg/policy": 1,

	"pkg/ratelimit":     2,
	"internal/tlsfiles": 2,

	"pkg/memorybackend": 3,
	"pkg/redisbackend":  3,
	"pkg/fallback":      3,
	"pkg/lease":         3,
	"pkg/descriptors":   3,
	"pkg/rlheaders":     3,
	"internal/board":    4,
	"internal/buckets":  4,
	"pkg/blocklist":     3,
	"pkg/rejectcache":   3,
	"pkg/idempotency":   3,
	"pkg/policysource":  3,
	"pkg/policydb":      3,
	"pkg/policydiff":    3,
	"pkg/policylint":    3,
	"pkg/storetest":     3,

	"internal/topkeys":    3,
	"internal/gcpace":     3,
	"internal/timerslack": 3,

	"pkg/descriptors/descriptorstest": 4,

	"pkg/idempotency/redisstore":      4,
	"pkg/idempotency/idempotencytest": 4,

	"pkg/policytest":   4,
	"pkg/rls":          4,
	"pkg/httplimit":    4,
	"pkg/grpclimit":    4,
	"pkg/redislimit":   4,
	"internal/metrics": 4,
	"internal/tracing": 4,

	"internal/tracing/tracingtest": 4,

	"internal/admin":   4,
	"internal/explain": 4,

	"internal/access":           3,
	"internal/adminhttp":        3,
	"internal/testcerts":        3,
	"internal/accuracy":         3,
	"internal/accuracy/observe": 4,
	"internal/childproc":        3,
	"internal/sizing":           3,
	"internal/redistest":        4,
	"internal/pgtest":           4,

	"internal/page": 5,

	"internal/app":      6,
	"internal/simulate": 5,

	"internal/bench":        3,
	"internal/bench/floor":  3,
	"internal/bench/report": 4,
	"internal/bench/lab":    5,

	"cmd/envoy-rls": 7,

	"internal/archtest": 7,
	"internal/doctest":  7,
}

// testSupport are packages that only test files may import. They may use the test modules themselves.
var testSupport = map[string]bool{
	"pkg/storetest":                   true,
	"pkg/descriptors/descriptorstest": true,
	"internal/pgtest":                 true,
	"internal/tracing/tracingtest":    true,
	"pkg/idempotency/idempotencytest": true,
}

// testOnly stands in the table of modules for "test files and test support only".
const testOnly = "test files"

// modules says who may import which module outside the standard library. A module that isn't here needs a line in
// docs/adr and a row.
var modules = map[string][]string{
	"github.com/fsnotify/fsnotify":                 {"pkg/policysource"},
	"github.com/goccy/go-yaml":                     {"pkg/policy"},
	"github.com/dunglas/httpsfv":                   {"pkg/rlheaders", "pkg/idempotency"},
	"github.com/prometheus/client_golang":          {"internal/metrics"},
	"github.com/tidwall/gjson":                     {"internal/simulate"},
	"github.com/spf13/cobra":                       {"cmd/envoy-rls"},
	"github.com/spf13/pflag":                       {"cmd/envoy-rls"},
	"github.com/redis/go-redis/v9":                 {"pkg/redisbackend", "pkg/idempotency/redisstore"},
	"github.com/jackc/pgx/v5":                      {"pkg/policydb", "internal/pgtest"},
	"google.golang.org/genproto/googleapis/rpc":    {"pkg/grpclimit"},
	"google.golang.org/grpc":                       {"pkg/rls", "pkg/grpclimit", "internal/tracing", "internal/tracing/tracingtest", "internal/app", "internal/bench", "internal/bench/floor"},
	"google.golang.org/protobuf":                   {"pkg/descriptors", "pkg/descriptors/descriptorstest", "pkg/rls", "pkg/grpclimit", "internal/app", "internal/bench", "cmd/envoy-rls", "internal/accuracy/observe"},
	"github.com/envoyproxy/go-control-plane/envoy": {"pkg/descriptors/descriptorstest", "pkg/rls", "internal/app", "internal/bench/floor", "cmd/envoy-rls", "internal/accuracy/observe"},
	"github.com/HdrHistogram/hdrhistogram-go":      {"internal/bench"},
	"golang.org/x/sync":                            {"internal/bench/lab"},
	"github.com/KimMachineGun/automemlimit":        {"internal/gcpace"},
	"golang.org/x/sys":                             {"internal/bench/lab", "internal/timerslack"},

	"github.com/go-logr/logr":                                         {"internal/tracing"},
	"go.opentelemetry.io/otel":                                        {"internal/tracing"},
	"go.opentelemetry.io/otel/sdk":                                    {"internal/tracing"},
	"go.opentelemetry.io/otel/trace":                                  {"internal/tracing"},
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc": {"internal/tracing"},

	"github.com/anishathalye/porcupine":        {testOnly},
	"go.opentelemetry.io/proto/otlp":           {testOnly},
	"github.com/santhosh-tekuri/jsonschema/v6": {testOnly},
	"github.com/stretchr/testify":              {testOnly},
	"go.uber.org/goleak":                       {testOnly},
	"pgregory.net/rapid":                       {testOnly},
}

// stdlibOnly are the packages that import nothing outside the standard library and the module itself, tests apart:
// whoever embeds them gets no dependency with them.
var stdlibOnly = map[string]bool{
	"pkg/algorithm":     true,
	"pkg/ratelimit":     true,
	"pkg/memorybackend": true,
}
