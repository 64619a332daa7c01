//go:build !race

package blocklist_test

const raceEnabled = false
