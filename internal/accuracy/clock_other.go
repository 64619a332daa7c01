//go:build !linux

package accuracy

import "time"

// monotonic is the time of day: processes that were started while it was corrected differ.
func monotonic() int64 { return time.Now().UnixNano() }
