// Package archtest holds the tests that keep the package tree in its layers: which package may import which, and who may
// use which module. It has no code of its own.
package archtest
