//go:build !race

package app_test

// raced says that the tests run under the race detector, which slows the program down ten times.
const raced = false
