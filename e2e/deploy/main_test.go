// Package deploy tests what deploy/ holds: the Kubernetes manifests as kustomize renders them, and Istio's EnvoyFilters as a proxy gets them.
// There is no cluster here: the binary is started as the manifests say, and the real Envoy with the configuration that the filters make.
package deploy_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

const root = "../.."

// programs are what the tests run. testMain sets them before any test runs.
var programs struct {
	service, envoy, kustomize string
	validator                 string // PYTHONPATH of kubernetes-validate
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "envoy-rls-deploy-")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := install(dir); err != nil {
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

// install has everything there that tests run, which takes time only once.
func install(dir string) error {
	var err error
	if programs.service, err = harness.ServiceBinary(root, dir); err != nil {
		return err
	}
	if programs.envoy, err = harness.Output(root + "/scripts/install-envoy.sh"); err != nil {
		return err
	}
	if programs.validator, err = harness.Output(root+"/scripts/install-python.sh", "kubernetes-validate"); err != nil {
		return err
	}
	programs.kustomize = root + "/.tools/bin/kustomize"
	_, err = harness.Output(root+"/scripts/ci-tools.sh", "kustomize")
	return err
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "deploy:", err)
	return 1
}

// patience bounds every wait for something that has to happen. A slow machine needs a part of it, a fault all of it.
const patience = time.Minute

// onlyLong skips what takes half a minute, unless the long forms of tests are asked for.
func onlyLong(t *testing.T) {
	t.Helper()
	if os.Getenv("ENVOY_RLS_LONG") != "1" {
		t.Skip("set ENVOY_RLS_LONG=1 for this one")
	}
}
