package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Overlays that no user is given as such, with the optional components.
const (
	everything = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../redis]
components: [../../components/postgres, ../../components/priority]
`
	secured = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../embedded]
components: [../../components/admin-token, ../../components/grpc-tls, ../../components/tracing]
`
)

// tree copies deploy/ to where a test may change it, with overlays of all components.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(root+"/deploy")))
	for name, text := range map[string]string{"everything": everything, "secured": secured} {
		overlay := filepath.Join(dir, "kustomize/overlays", name)
		require.NoError(t, os.MkdirAll(overlay, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600))
	}
	return dir
}

// overlays are all that a tree has.
func overlays(t *testing.T, dir string) []string {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(dir, "kustomize/overlays"))
	require.NoError(t, err)
	var names []string
	for _, entry := range found {
		names = append(names, entry.Name())
	}
	return names
}

// depth is how much is checked. Each takes more time than the one before.
type depth int

const (
	rendered depth = iota // what the manifests say
	checked               // and what Kubernetes' schemas and envoy-rls validate say of it
	started               // and what the binary does, started as they say
)

// faultsOf checks overlays of a tree.
func faultsOf(t *testing.T, dir string, deep depth, overlays ...string) []string {
	t.Helper()
	known, err := flags()
	require.NoError(t, err)
	adapter, err := os.ReadFile(filepath.Join(dir, "prometheus-adapter/values.yaml"))
	require.NoError(t, err)
	var all []string
	for _, overlay := range overlays {
		m, err := render(dir, overlay)
		if err != nil {
			return append(all, err.Error())
		}
		found := append(m.crossFaults(known), m.safetyFaults(known, string(adapter))...)
		if deep >= checked {
			scratch := t.TempDir()
			found = append(found, m.schemaFaults(scratch)...)
			found = append(found, m.validateFaults(scratch)...)
		}
		if deep >= started {
			found = append(found, m.runningFaults(t.Context(), known, string(adapter), t.TempDir())...)
		}
		for _, fault := range found {
			all = append(all, overlay+": "+fault)
		}
	}
	return all
}

func TestManifestsAreSound(t *testing.T) {
	dir := tree(t)
	all := overlays(t, dir)
	require.Equal(t, []string{"embedded", "everything", "redis", "secured"}, all)
	require.Empty(t, faultsOf(t, dir, started, all...))
}

// replace plants a fault in a file of a tree.
func replace(t *testing.T, path, old, fault string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), old, "there is nothing to plant the fault in")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), old, fault, 1)), 0o600))
}

// Each check finds a fault of its kind.
func TestPlantedFaultsInManifestsAreFound(t *testing.T) {
	onlyLong(t)
	const (
		deployment = "kustomize/base/deployment.yaml"
		network    = "kustomize/base/networkpolicy.yaml"
		onRedis    = "kustomize/overlays/redis/deployment.yaml"
		hpa        = "kustomize/components/hpa/horizontalpodautoscaler.yaml"
		adapter    = "prometheus-adapter/values.yaml"
		monitor    = "kustomize/components/monitoring/servicemonitor.yaml"
	)
	tests := []struct {
		name, file, old, fault string
		want                   string // part of a fault
		deep                   depth  // what it takes to find it
	}{
		{"field that there is not", deployment, "minReadySeconds", "minReadySecond", "minReadySecond", checked},
		{"value of another kind", deployment, "failureThreshold: 60", "failureThreshold: 60.5", "60.5", checked},
		{"field of a ServiceMonitor", monitor, "interval:", "intervall:", "intervall", rendered},
		{"resource that there is not", "kustomize/base/kustomization.yaml", "- service.yaml", "- services.yaml", "services.yaml", rendered},
		{"labels of pods", deployment, "      labels:\n        app.kubernetes.io/name: envoy-rls", "      labels:\n        app.kubernetes.io/name: envoyrls", "does not select the pods", rendered},
		{"spread over zones", deployment, "topology.kubernetes.io/zone", "topology.kubernetes.io/zones", "not spread over zones", rendered},
		{"selector of the ServiceMonitor", monitor, "matchLabels:\n      app.kubernetes.io/name: envoy-rls", "matchLabels:\n      app: envoy-rls", "does not select the Service", rendered},
		{"service account", deployment, "serviceAccountName: envoy-rls", "serviceAccountName: default", "no ServiceAccount default", rendered},
		{"priority class", "kustomize/components/priority/priorityclass.yaml", "name: envoy-rls", "name: high", "no PriorityClass envoy-rls", rendered},
		{"image without a tag", "kustomize/overlays/embedded/kustomization.yaml", "- name: envoy-rls\n  newTag", "- name: other\n  newTag", "has no tag", rendered},
		{"not headless", "kustomize/base/service.yaml", "clusterIP: None", "type: ClusterIP", "not headless", rendered},
		{"target of the autoscaler", hpa, "    name: envoy-rls\n  minReplicas", "    name: ratelimit\n  minReplicas", "scales Deployment ratelimit", rendered},
		{"replicas beside an autoscaler", "kustomize/overlays/redis/kustomization.yaml", "op: remove, path: /spec/replicas", "op: replace, path: /spec/replicas, value: 4", "replicas, and an autoscaler", rendered},
		{"autoscaler with buckets in memory", "kustomize/overlays/embedded/kustomization.yaml", "components:", "components:\n- ../../components/hpa", "belongs where buckets are shared", rendered},
		{"volume", deployment, "- {name: policies, mountPath", "- {name: policy, mountPath", "no volume policy", rendered},
		{"ConfigMap", deployment, "name: envoy-rls-policies", "name: policies", "no ConfigMap policies", rendered},
		{"file of a secret", onRedis, "/run/secrets/redis/password", "/run/secrets/redis/pass", "no volume has it", rendered},
		{"path of policies", deployment, "value: /etc/envoy-rls}", "value: /etc/policies}", "no volume has it", rendered},
		{"port of the container", deployment, "containerPort: 8081", "containerPort: 8082", "the binary listens on 8081", rendered},
		{"address of the binary", deployment, `value: ":8080"`, `value: ":9090"`, "the binary listens on 9090", rendered},
		{"port of the Service", "kustomize/base/service.yaml", "port: 8081", "port: 80", "leads nowhere", rendered},
		{"port of a probe", deployment, "path: /healthz, port: admin", "path: /healthz, port: http", "a port that there is not", rendered},
		{"port of the ServiceMonitor", monitor, "port: admin", "port: grpc", "another port than admin", rendered},
		{"port that nobody may call", network, "port: grpc", "port: admin", "nobody may call port grpc", rendered},
		{"port that there is not", network, "port: admin", "port: metrics", "which there is not", rendered},
		{"everybody may call", network, "        matchLabels:\n          envoy-rls/client: \"true\"", "        {}", "every namespace may call", rendered},
		{"Redis' port", onRedis, "cluster.local:6379", "cluster.local:6380", "TCP 6380", rendered},
		{"PostgreSQL's port", "kustomize/components/postgres/networkpolicy.yaml", "5432", "5433", "needs [TCP 53 TCP 5432", rendered},
		{"collector's port", "kustomize/components/tracing/networkpolicy.yaml", "4317", "4318", "needs [TCP 4317", rendered},
		{"certificate", "kustomize/components/grpc-tls/deployment.yaml", "grpc-tls/tls.crt", "grpc-tls/cert.crt", "no volume has it", rendered},
		{"flag of a component", "kustomize/components/admin-token/deployment.yaml", "ENVOY_RLS_ADMIN_TOKEN_FILE", "ENVOY_RLS_ADMIN_TOKENS_FILE", "sets no flag", rendered},
		{"variable", deployment, "ENVOY_RLS_LOG_FORMAT", "ENVOY_RLS_LOGFORMAT", "ENVOY_RLS_LOGFORMAT sets no flag", rendered},
		{"runs as root", deployment, "runAsNonRoot: true", "runAsNonRoot: false", "may run as root", rendered},
		{"seccomp", deployment, "type: RuntimeDefault", "type: Unconfined", "no seccomp profile", rendered},
		{"root file system", deployment, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "can be written to", rendered},
		{"privileges", deployment, "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "gain privileges", rendered},
		{"capabilities", deployment, "drop: [ALL]", "drop: [CHOWN]", "keeps capabilities", rendered},
		{"token", "kustomize/base/serviceaccount.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "token for the API server", rendered},
		{"service links", deployment, "enableServiceLinks: false", "enableServiceLinks: true", "service links", rendered},
		{"grace period", deployment, "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 15", "is killed 15s after", rendered},
		{"hook before the end", deployment, "        startupProbe:", "        lifecycle: {preStop: {sleep: {seconds: 15}}}\n        startupProbe:", "drains for 25s", rendered},
		{"readiness noticed late", deployment, "periodSeconds: 2", "periodSeconds: 8", "to see that a pod is not ready", rendered},
		{"GOMEMLIMIT", deployment, "920MiB", "1020MiB", "GOMEMLIMIT 1020MiB does not fit", rendered},
		{"memory for the buckets", "kustomize/overlays/embedded/kustomization.yaml", `"4000000"`, `"8000000"`, "the service needs", rendered},
		{"limit of CPU", deployment, "limits: {memory", "limits: {cpu: \"2\", memory", "a limit of CPU", rendered},
		{"threads", deployment, "resource: requests.cpu", "resource: limits.memory", "GOMAXPROCS", rendered},
		{"metric of the autoscaler", hpa, "rls_decisions_per_second", "rls_decisions_rate", "makes no metric rls_decisions_rate", rendered},
		{"target beyond what an instance bears", hpa, "30k", "80k", "wants 80000 decisions", rendered},
		{"instances", onRedis, `"3"`, `"1"`, "ENVOY_RLS_INSTANCES", rendered},
		{"field of the adapter", adapter, "metricsQuery", "metricQuery", "metricQuery", rendered},
		{"fault in a policy", "kustomize/base/policies/mesh.yaml", "onStoreFailure: local", "onStoreFailure: Local", "onStoreFailure", checked},

		{"path of a probe", deployment, "path: /healthz", "path: /health", "the liveness probe", started},
		{"counter of the adapter", adapter, "envoy_rls_requests_total{", "envoy_rls_request_total{", "no counter envoy_rls_request_total", started},
		{"path of the metrics", monitor, "path: /metrics", "path: /stats", "the ServiceMonitor", started},
		{"value of a variable", deployment, "value: json", "value: yaml", "does not start", started},
		{"command", deployment, "args: [serve]", "args: [server]", "does not start", started},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := tree(t)
			replace(t, filepath.Join(dir, test.file), test.old, test.fault)
			found := faultsOf(t, dir, test.deep, "everything", "secured") // which hold all that the others do
			require.Contains(t, strings.Join(found, "\n"), test.want)
		})
	}
}
