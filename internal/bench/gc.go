package bench

import (
	"os"
	"runtime/debug"
)

// lazyGC is the pace of the garbage collector, in percent.
const lazyGC = 400

// LazyGC has this process collect garbage seldom, unless the environment says how often: while it does, the calls under way wait, and are taken for
// slow.
func LazyGC() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(lazyGC)
	}
}
