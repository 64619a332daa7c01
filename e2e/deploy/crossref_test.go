package deploy_test

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// crossFaults are references from one object to another, or to the binary, that lead nowhere.
func (m *manifests) crossFaults(known map[string]string) []string {
	_, faults := m.environment(known)
	for _, check := range []func(map[string]string) []string{
		m.selectorFaults, m.nameFaults, m.volumeFaults, m.portFaults, m.ingressFaults, m.egressFaults,
	} {
		faults = append(faults, check(known)...)
	}
	return faults
}

// faults collects what does not hold.
type faults []string

func (f *faults) unless(holds bool, format string, args ...any) {
	if !holds {
		*f = append(*f, fmt.Sprintf(format, args...))
	}
}

func (m *manifests) selectorFaults(map[string]string) []string {
	var f faults
	pod := m.Deployment.Spec.Template.Metadata.Labels
	for who, s := range map[string]selector{
		"the Deployment": m.Deployment.Spec.Selector, "the Service": {m.Service.Spec.Selector},
		"the PodDisruptionBudget": m.Budget.Spec.Selector, "the NetworkPolicy": m.Network.Spec.PodSelector,
	} {
		f.unless(s.picks(pod), "%s does not select the pods", who)
	}
	var spread []string
	for _, c := range m.Deployment.Spec.Template.Spec.TopologySpreadConstraints {
		f.unless(c.LabelSelector.picks(pod), "the spread over %s does not select the pods", c.TopologyKey)
		spread = append(spread, c.TopologyKey)
	}
	f.unless(slices.Contains(spread, "topology.kubernetes.io/zone"), "pods are not spread over zones")
	if m.Monitor != nil {
		f.unless(m.Monitor.Spec.Selector.picks(m.Service.Metadata.Labels), "the ServiceMonitor does not select the Service")
	}
	return f
}

func (m *manifests) nameFaults(map[string]string) []string {
	var f faults
	pod := m.Deployment.Spec.Template.Spec
	f.unless(pod.ServiceAccountName == m.Account.Metadata.Name, "no ServiceAccount %s", pod.ServiceAccountName)
	f.unless(m.Deployment.Metadata.Namespace == m.Namespace.Metadata.Name, "no Namespace %s", m.Deployment.Metadata.Namespace)
	f.unless(pod.PriorityClassName == "" || m.Priority != nil && m.Priority.Metadata.Name == pod.PriorityClassName, "no PriorityClass %s", pod.PriorityClassName)
	f.unless(len(pod.Containers) == 1, "%d containers", len(pod.Containers))
	f.unless(strings.Contains(m.container().Image, ":"), "the image %s has no tag", m.container().Image)
	f.unless(m.Service.Spec.ClusterIP == "None", "the Service is not headless: a gRPC connection would stay with one pod")
	if m.Scaler != nil {
		to := m.Scaler.Spec.ScaleTargetRef
		f.unless(to.Kind == "Deployment" && to.Name == m.Deployment.Metadata.Name, "the autoscaler scales %s %s, which there is not", to.Kind, to.Name)
		f.unless(m.Deployment.Spec.Replicas == nil, "the Deployment has replicas, and an autoscaler")
	}
	return f
}

// volumeFaults are mounts without a volume, volumes without a source or a mount, and files named in the environment that no mount has.
func (m *manifests) volumeFaults(known map[string]string) []string {
	var f faults
	mounted := map[string]string{} // volume to path
	for _, at := range m.container().VolumeMounts {
		mounted[at.Name] = at.MountPath
	}
	volumes := map[string]bool{}
	for _, v := range m.Deployment.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
		f.unless(mounted[v.Name] != "", "volume %s is not mounted", v.Name)
		if v.ConfigMap != nil {
			f.unless(m.ConfigMaps[v.ConfigMap.Name] != nil, "no ConfigMap %s", v.ConfigMap.Name)
		}
	}
	for name := range mounted {
		f.unless(volumes[name], "no volume %s", name)
	}
	set, _ := m.environment(known)
	for name, value := range set {
		if name != "ENVOY_RLS_POLICIES" && !strings.HasSuffix(name, "_FILE") {
			continue
		}
		f.unless(m.has(mounted, value), "%s=%s: no volume has it", name, value)
	}
	return f
}

// has tells whether a volume has the path. One that the service writes to has all.
func (m *manifests) has(mounted map[string]string, path string) bool {
	for _, v := range m.Deployment.Spec.Template.Spec.Volumes {
		at := mounted[v.Name]
		if at == "" || path != at && !strings.HasPrefix(path, at+"/") {
			continue
		}
		_, file := m.files(v.Name)[strings.TrimPrefix(path, at+"/")]
		return file || path == at || v.EmptyDir != nil
	}
	return false
}

// containerPort is the number of the container's port with that name, or nothing.
func (m *manifests) containerPort(name string) string {
	for _, p := range m.container().Ports {
		if p.Name == name {
			return strconv.Itoa(p.ContainerPort)
		}
	}
	return ""
}

// portFaults are ports that the binary does not listen on, and names of ports that there are not.
func (m *manifests) portFaults(known map[string]string) []string {
	var f faults
	for name, variable := range map[string]string{"grpc": "ENVOY_RLS_GRPC_ADDR", "admin": "ENVOY_RLS_ADMIN_ADDR"} {
		listens := port(m.setting(known, variable))
		f.unless(m.containerPort(name) == listens, "port %s of the container is %q, and the binary listens on %s", name, m.containerPort(name), listens)
		f.unless(m.servicePort(name) != 0, "the Service has no port %s", name)
	}
	for _, p := range m.Service.Spec.Ports {
		// Without a cluster IP the port of the Service is not translated: it has to be the container's.
		f.unless(m.containerPort(p.TargetPort) == strconv.Itoa(p.Port), "port %s of the Service leads nowhere", p.Name)
	}
	for what, probe := range m.container().probes() {
		f.unless(probe != nil, "no %s probe", what)
		f.unless(probe == nil || m.containerPort(probe.HTTPGet.Port) != "", "the %s probe goes to a port that there is not", what)
	}
	if m.Monitor != nil {
		f.unless(len(m.Monitor.Spec.Endpoints) == 1 && m.Monitor.Spec.Endpoints[0].Port == "admin", "the ServiceMonitor asks another port than admin")
	}
	return f
}

func (m *manifests) servicePort(name string) int {
	for _, p := range m.Service.Spec.Ports {
		if p.Name == name {
			return p.Port
		}
	}
	return 0
}

// ingressFaults are ports that nobody may call, or everybody.
func (m *manifests) ingressFaults(map[string]string) []string {
	var f faults
	f.unless(slices.Contains(m.Network.Spec.PolicyTypes, "Ingress") && slices.Contains(m.Network.Spec.PolicyTypes, "Egress"), "the NetworkPolicy leaves one direction open")
	open := map[string]bool{}
	for _, r := range m.Network.Spec.Ingress {
		f.unless(len(r.From) > 0, "everybody may call")
		for _, from := range r.From {
			f.unless(from.NamespaceSelector != nil && len(from.NamespaceSelector.MatchLabels) > 0, "every namespace may call")
		}
		for _, p := range r.Ports {
			f.unless(m.containerPort(p.Port) != "", "the NetworkPolicy lets calls through to port %s, which there is not", p.Port)
			open[p.Port] = true
		}
	}
	for _, p := range m.container().Ports {
		f.unless(open[p.Name], "nobody may call port %s", p.Name)
	}
	return f
}

// egressFaults are servers that the service is told to call and may not, and the other way round.
func (m *manifests) egressFaults(known map[string]string) []string {
	var f faults
	needed := []string{"TCP 53", "UDP 53"}
	for _, name := range []string{"ENVOY_RLS_REDIS_URL", "ENVOY_RLS_OTLP_ENDPOINT"} {
		set, _ := m.environment(known)
		if set[name] == "" {
			continue
		}
		target, err := url.Parse(set[name])
		f.unless(err == nil && target.Port() != "", "%s has no port", name)
		if err == nil {
			needed = append(needed, "TCP "+target.Port())
		}
	}
	if m.setting(known, "ENVOY_RLS_POLICY_SOURCE") == "postgres" {
		needed = append(needed, "TCP 5432")
	}
	var open []string
	for _, r := range m.Network.Spec.Egress {
		f.unless(len(r.To) > 0, "the service may call everybody")
		for _, p := range r.Ports {
			open = append(open, p.Protocol+" "+p.Port)
		}
	}
	slices.Sort(open)
	slices.Sort(needed)
	f.unless(slices.Equal(open, needed), "the service may call %v and needs %v", open, needed)
	return f
}
