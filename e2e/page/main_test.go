// Package page tests the web page in a real browser, on instances of the service that share a real Redis.
package page_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// programs are what the tests run. testMain sets them before any test does.
var programs struct{ service, driver string }

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "envoy-rls-page-")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if programs.driver, err = harness.Output("../../scripts/install-browser-driver.sh"); err != nil {
		return fail(err)
	}
	if programs.service, err = harness.ServiceBinary("../..", dir); err != nil {
		return fail(err)
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			return fail(err)
		}
	}
	return code
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "page:", err)
	return 1
}
