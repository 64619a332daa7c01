package accuracy_test

import (
	"math"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long tells whether the long forms of tests are asked for.
func long() bool { return os.Getenv("ENVOY_RLS_LONG") == "1" }

// nan is what an entry says that was not told what is left.
var nan = math.NaN()
