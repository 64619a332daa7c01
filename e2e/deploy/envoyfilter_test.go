package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	istio "istio.io/api/networking/v1alpha3"

	// What is known by @type in the filters and in testdata.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/rate_limit_descriptors/expr/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
)

// envoyFilters has kustomize make the EnvoyFilters of a directory of deploy/istio and reads them by Istio's own definition: a field that there is
// not is an error.
func envoyFilters(dir string) ([]*istio.EnvoyFilter, error) {
	rendered, err := kustomize(dir)
	if err != nil {
		return nil, err
	}
	var filters []*istio.EnvoyFilter
	for text := range strings.SplitSeq(rendered, "\n---\n") {
		filter, err := readEnvoyFilter(text)
		if err != nil {
			return nil, err
		}
		filters = append(filters, filter)
	}
	return filters, nil
}

func readEnvoyFilter(text string) (*istio.EnvoyFilter, error) {
	var resource struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       any
	}
	if err := yaml.UnmarshalWithOptions([]byte(text), &resource, yaml.Strict()); err != nil {
		return nil, err
	}
	if resource.Kind != "EnvoyFilter" || resource.APIVersion != "networking.istio.io/v1alpha3" {
		return nil, fmt.Errorf("%s %s is no EnvoyFilter", resource.APIVersion, resource.Kind)
	}
	spec, err := json.Marshal(resource.Spec)
	if err != nil {
		return nil, err
	}
	filter := &istio.EnvoyFilter{}
	if err := protojson.Unmarshal(spec, filter); err != nil {
		return nil, fmt.Errorf("%s: %w", resource.Metadata.Name, err)
	}
	return filter, nil
}

// places are where the parts of a test listen, by the port that the configuration in testdata has for each.
type places map[uint32]uint32

// readProxy reads a proxy's configuration from testdata and moves its ports.
func readProxy(name, certs string, moved places) (proxy, error) {
	text, err := os.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		return proxy{}, err
	}
	asJSON, err := yaml.YAMLToJSON(bytes.ReplaceAll(text, []byte("CERTS"), []byte(certs)))
	if err != nil {
		return proxy{}, err
	}
	p := proxy{config: &bootstrap.Bootstrap{}, gateway: name == "gateway"}
	if err := protojson.Unmarshal(asJSON, p.config); err != nil {
		return proxy{}, err
	}
	move(moved, p.config.Admin.Address)
	for _, l := range p.config.StaticResources.Listeners {
		move(moved, l.Address)
		for _, chain := range l.FilterChains {
			if port := chain.GetFilterChainMatch().GetDestinationPort(); moved[port.GetValue()] != 0 {
				port.Value = moved[port.GetValue()]
			}
		}
	}
	for _, c := range p.config.StaticResources.Clusters {
		move(moved, endpoint(c))
	}
	return p, nil
}

func move(moved places, address *core.Address) {
	at := address.GetSocketAddress()
	if to := moved[at.GetPortValue()]; to != 0 {
		at.PortSpecifier = &core.SocketAddress_PortValue{PortValue: to}
	}
}

// endpoint is the address of a cluster's only endpoint.
func endpoint(c *cluster.Cluster) *core.Address {
	return c.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress()
}

// service is the cluster that the filters have added.
func (p proxy) service() (*cluster.Cluster, error) {
	for _, c := range p.config.StaticResources.Clusters {
		if c.Name == "envoy_rls" {
			return c, nil
		}
	}
	return nil, errors.New("no cluster envoy_rls")
}

// write writes the configuration for Envoy and gives its path.
func (p proxy) write(dir string) (string, error) {
	text, err := protojson.Marshal(p.config)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "envoy.json")
	return path, os.WriteFile(path, text, 0o600)
}
