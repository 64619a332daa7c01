package algorithm

import (
	"embed"
	"strings"
)

//go:embed *.lua
var scripts embed.FS

// Kinds lists the algorithms in the order of their rows.
func Kinds() []Kind {
	kinds := make([]Kind, len(table))
	for i, r := range table {
		kinds[i] = r.kind
	}
	return kinds
}

// Script is the algorithm in Lua, for a store that decides inside of Redis: the file of its name without the hyphen, which has
// sections that begin with a line --@NAME. What each must do is said where they are put together, in pkg/redisbackend. Empty for a
// kind that is none.
func (k Kind) Script() string {
	source, err := scripts.ReadFile(strings.ReplaceAll(k.String(), "-", "") + ".lua")
	if err != nil {
		return "" // a test insists on a file for each row
	}
	return string(source)
}
