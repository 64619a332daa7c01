package algorithm

import _ "embed" // for the scripts

var (
	//go:embed tokenbucket.lua
	tokenBucketScript string
	//go:embed slidinglog.lua
	slidingLogScript string
)

// Kinds lists the algorithms in the order of their rows.
func Kinds() []Kind {
	kinds := make([]Kind, len(table))
	for i, r := range table {
		kinds[i] = r.kind
	}
	return kinds
}

// Script is the algorithm in Lua, for a store that decides inside of Redis: sections that begin with a line --@NAME. What each
// must do is said where they are put together, in pkg/redisbackend.
func (k Kind) Script() string {
	for _, r := range table {
		if r.kind == k {
			return r.script
		}
	}
	return ""
}
