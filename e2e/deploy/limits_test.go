package deploy_test

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/envoy-rls/envoy-rls/internal/sizing"
)

// safetyFaults are numbers that do not fit together, and doors left open.
func (m *manifests) safetyFaults(known map[string]string, adapter string) []string {
	var f []string
	for _, check := range []func(map[string]string) []string{m.securityFaults, m.timeFaults, m.memoryFaults} {
		f = append(f, check(known)...)
	}
	return append(f, m.scalerFaults(known, adapter)...)
}

func (m *manifests) securityFaults(map[string]string) []string {
	var f faults
	pod, c := m.Deployment.Spec.Template.Spec, m.container()
	f.unless(pod.SecurityContext.RunAsNonRoot, "may run as root")
	f.unless(pod.SecurityContext.SeccompProfile.Type == "RuntimeDefault", "no seccomp profile")
	f.unless(c.SecurityContext.ReadOnlyRootFilesystem, "the root file system can be written to")
	f.unless(c.SecurityContext.AllowPrivilegeEscalation != nil && !*c.SecurityContext.AllowPrivilegeEscalation, "may gain privileges")
	f.unless(slices.Equal(c.SecurityContext.Capabilities.Drop, []string{"ALL"}), "keeps capabilities")
	f.unless(isFalse(pod.AutomountServiceAccountToken) && isFalse(m.Account.AutomountServiceAccountToken), "has a token for the API server")
	f.unless(isFalse(pod.EnableServiceLinks), "service links set variables that look like flags")
	f.unless(m.Namespace.Metadata.Labels["pod-security.kubernetes.io/enforce"] == "restricted", "the namespace takes pods of any kind")
	return f
}

func isFalse(b *bool) bool { return b != nil && !*b }

// slack is for finishing the calls under way.
const slack = 10 * time.Second

func (m *manifests) timeFaults(known map[string]string) []string {
	var f faults
	drain, err := time.ParseDuration(m.setting(known, "ENVOY_RLS_DRAIN_DELAY"))
	f.unless(err == nil, "the drain delay is not a duration")
	var hook time.Duration
	if l := m.container().Lifecycle; l != nil && l.PreStop != nil {
		hook = time.Duration(l.PreStop.Sleep.Seconds) * time.Second
	}
	grace := time.Duration(m.Deployment.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	f.unless(grace >= hook+drain+slack, "a pod is killed %s after it was told to stop, and drains for %s", grace, hook+drain)
	if p := m.container().ReadinessProbe; p != nil {
		noticed := time.Duration(p.PeriodSeconds*p.FailureThreshold) * time.Second
		f.unless(noticed < drain, "it takes %s to see that a pod is not ready, which drains for %s", noticed, drain)
	}
	return f
}

// A bucket in memory takes up to this many bytes: docs/operations.md.
const mostBytesOfBucket = 100

func (m *manifests) memoryFaults(known map[string]string) []string {
	var f faults
	c := m.container()
	limit := quantity(c.Resources.Limits["memory"])
	f.unless(limit > 0, "no limit of memory")
	f.unless(c.Resources.Limits["memory"] == c.Resources.Requests["memory"], "less memory is asked for than may be used")
	f.unless(c.Resources.Limits["cpu"] == "", "a limit of CPU: it stops calls for longer than Envoy waits")
	set, _ := m.environment(known)
	goLimit := quantity(strings.TrimSuffix(set["GOMEMLIMIT"], "B"))
	f.unless(goLimit > 0.8*limit && goLimit < 0.95*limit, "GOMEMLIMIT %s does not fit a limit of %s", set["GOMEMLIMIT"], c.Resources.Limits["memory"])
	f.unless(set["GOMAXPROCS"] != "" && set["GOMAXPROCS"] == c.Resources.Requests["cpu"], "GOMAXPROCS is not what is asked for of CPU")
	needs := float64(sizing.InstanceBase)
	if m.setting(known, "ENVOY_RLS_STORE") == "memory" {
		buckets, err := strconv.Atoi(m.setting(known, "ENVOY_RLS_MAX_BUCKETS"))
		f.unless(err == nil, "ENVOY_RLS_MAX_BUCKETS is no number")
		needs += float64(buckets) * mostBytesOfBucket
	}
	f.unless(needs <= goLimit, "the service needs %.0f MiB, and GOMEMLIMIT is %s", needs/(1<<20), set["GOMEMLIMIT"])
	return f
}

// quantity is a number as Kubernetes writes it; 0 if it is none.
func quantity(text string) float64 {
	for suffix, times := range map[string]float64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "k": 1e3, "M": 1e6, "": 1} {
		digits, found := strings.CutSuffix(text, suffix)
		if n, err := strconv.ParseFloat(digits, 64); found && err == nil {
			return n * times
		}
	}
	return 0
}

// adapterRules are the values of prometheus-adapter.
type adapterRules struct {
	Rules struct {
		Custom []struct {
			SeriesQuery string `yaml:"seriesQuery"`
			Resources   struct {
				Overrides map[string]struct{ Resource string }
			}
			Name         struct{ As string }
			MetricsQuery string `yaml:"metricsQuery"`
		}
	}
}

// series is the name of the counter that a metric of the adapter is made of; empty if it makes no such metric.
func (a adapterRules) series(metric string) string {
	for _, r := range a.Rules.Custom {
		if r.Name.As == metric {
			name, _, _ := strings.Cut(r.SeriesQuery, "{")
			return name
		}
	}
	return ""
}

func (m *manifests) scalerFaults(known map[string]string, adapter string) []string {
	var f faults
	embedded := m.setting(known, "ENVOY_RLS_STORE") == "memory"
	f.unless((m.Scaler == nil) == embedded, "an autoscaler belongs where buckets are shared, and nowhere else")
	if m.Scaler == nil {
		return f
	}
	var rules adapterRules
	if err := yaml.UnmarshalWithOptions([]byte(adapter), &rules, yaml.Strict()); err != nil {
		return []string{"prometheus-adapter: " + err.Error()}
	}
	spec := m.Scaler.Spec
	f.unless(spec.MinReplicas >= sizing.Zones, "fewer instances than zones")
	f.unless(m.setting(known, "ENVOY_RLS_INSTANCES") == strconv.Itoa(spec.MinReplicas), "ENVOY_RLS_INSTANCES is not the least number of instances")
	f.unless(len(spec.Metrics) == 1 && spec.Metrics[0].Type == "Pods", "the autoscaler looks at something else than the pods' metric")
	for _, metric := range spec.Metrics {
		f.unless(rules.series(metric.Pods.Metric.Name) != "", "prometheus-adapter makes no metric %s", metric.Pods.Metric.Name)
		cores, _ := strconv.Atoi(m.container().Resources.Requests["cpu"])
		most := sizing.PerInstance(cores, sizing.SingleCPU2)
		target := quantity(metric.Pods.Target.AverageValue)
		f.unless(target <= most && target > most/2, "the autoscaler wants %.0f decisions a second of an instance, which bears %.0f", target, most)
	}
	return f
}
