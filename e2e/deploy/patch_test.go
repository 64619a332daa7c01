package deploy_test

import (
	"errors"
	"fmt"
	"slices"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	istio "istio.io/api/networking/v1alpha3"
)

// proxy is a proxy's configuration as istiod makes it, to which EnvoyFilters are applied as istiod does: as far as the filters of deploy/istio need it, and
// no farther. Whatever else a filter asks for is an error.
type proxy struct {
	config  *bootstrap.Bootstrap
	gateway bool // or a sidecar
}

type (
	patch = istio.EnvoyFilter_EnvoyConfigObjectPatch
	match = istio.EnvoyFilter_EnvoyConfigObjectMatch
)

// apply applies the patches of one EnvoyFilter, in order. A patch that finds nothing to change is an error: istiod would say nothing.
func (p proxy) apply(filter *istio.EnvoyFilter) error {
	for i, patch := range filter.ConfigPatches {
		changed, err := p.applyOne(patch)
		if err == nil && changed == 0 {
			err = errors.New("matches nothing")
		}
		if err != nil {
			return fmt.Errorf("patch %d (%s): %w", i+1, patch.ApplyTo, err)
		}
	}
	return nil
}

// applyOne applies a patch and tells how many things it has changed.
func (p proxy) applyOne(patch *patch) (int, error) {
	if patch.Match.GetProxy() != nil || patch.Match.GetCluster() != nil || patch.Match.GetWaypoint() != nil {
		return 0, errors.New("a kind of match that these tests do not know")
	}
	switch patch.ApplyTo.String() + " " + patch.Patch.Operation.String() {
	case "CLUSTER ADD":
		return p.addCluster(patch)
	case "NETWORK_FILTER MERGE":
		return p.eachManager(patch.Match, func(m *hcm.HttpConnectionManager) (bool, error) { return true, mergeFilter(m, patch) })
	case "HTTP_FILTER INSERT_BEFORE":
		return p.eachManager(patch.Match, func(m *hcm.HttpConnectionManager) (bool, error) { return insertBefore(m, patch) })
	case "VIRTUAL_HOST MERGE", "HTTP_ROUTE MERGE":
		return p.mergeRoutes(patch)
	}
	return 0, fmt.Errorf("operation %s is one that these tests do not know", patch.Patch.Operation)
}

// context tells whether a match is for a listener of this proxy.
func (p proxy) context(m *match, direction core.TrafficDirection) bool {
	switch m.GetContext() {
	case istio.EnvoyFilter_GATEWAY:
		return p.gateway
	case istio.EnvoyFilter_SIDECAR_INBOUND:
		return !p.gateway && direction == core.TrafficDirection_INBOUND
	case istio.EnvoyFilter_SIDECAR_OUTBOUND:
		return !p.gateway && direction == core.TrafficDirection_OUTBOUND
	}
	return true // ANY
}

// value reads what a patch has to add into a message. A field that the message has not is an error.
func value(patch *patch, into proto.Message) error {
	text, err := protojson.Marshal(patch.Patch.Value)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(text, into)
}

func (p proxy) addCluster(patch *patch) (int, error) {
	if p.gateway != (patch.Match.GetContext() == istio.EnvoyFilter_GATEWAY) {
		return 0, nil
	}
	added := &cluster.Cluster{}
	if err := value(patch, added); err != nil {
		return 0, err
	}
	for _, known := range p.config.StaticResources.Clusters {
		if known.Name == added.Name {
			return 0, fmt.Errorf("a second cluster %s", added.Name)
		}
	}
	p.config.StaticResources.Clusters = append(p.config.StaticResources.Clusters, added)
	return 1, nil
}

// eachManager calls change for each connection manager that a match finds, and puts back what has changed.
func (p proxy) eachManager(m *match, change func(*hcm.HttpConnectionManager) (bool, error)) (int, error) {
	changed := 0
	for _, l := range p.config.StaticResources.Listeners {
		if !p.context(m, l.TrafficDirection) || !named(m.GetListener().GetName(), l.Name) {
			continue
		}
		for _, chain := range l.FilterChains {
			if !matchesChain(m.GetListener(), l, chain) {
				continue
			}
			for _, filter := range chain.Filters {
				if !named(m.GetListener().GetFilterChain().GetFilter().GetName(), filter.Name) {
					continue
				}
				did, err := changeManager(filter, change)
				if err != nil {
					return changed, err
				}
				changed += did
			}
		}
	}
	return changed, nil
}

// named tells whether a name is the one that is asked for, or none is.
func named(asked, name string) bool { return asked == "" || asked == name }

// matchesChain compares ports as istiod does: of virtualInbound, which is for all ports, that of the chain counts.
func matchesChain(m *istio.EnvoyFilter_ListenerMatch, l *listener.Listener, chain *listener.FilterChain) bool {
	port := l.GetAddress().GetSocketAddress().GetPortValue()
	if l.Name == "virtualInbound" {
		port = chain.GetFilterChainMatch().GetDestinationPort().GetValue()
	}
	if m.GetPortNumber() != 0 && m.GetPortNumber() != port {
		return false
	}
	return named(m.GetFilterChain().GetName(), chain.Name)
}

// changeManager changes a filter if it is a connection manager, and gives 1 if it did.
func changeManager(filter *listener.Filter, change func(*hcm.HttpConnectionManager) (bool, error)) (int, error) {
	manager := &hcm.HttpConnectionManager{}
	if !filter.GetTypedConfig().MessageIs(manager) {
		return 0, nil
	}
	if err := filter.GetTypedConfig().UnmarshalTo(manager); err != nil {
		return 0, err
	}
	did, err := change(manager)
	if err != nil || !did {
		return 0, err
	}
	packed, err := anypb.New(manager)
	filter.ConfigType = &listener.Filter_TypedConfig{TypedConfig: packed}
	return 1, err
}

func mergeFilter(m *hcm.HttpConnectionManager, patch *patch) error {
	added := &listener.Filter{}
	if err := value(patch, added); err != nil {
		return err
	}
	config := &hcm.HttpConnectionManager{}
	if err := added.GetTypedConfig().UnmarshalTo(config); err != nil {
		return err
	}
	proto.Merge(m, config)
	return nil
}

func insertBefore(m *hcm.HttpConnectionManager, patch *patch) (bool, error) {
	added := &hcm.HttpFilter{}
	if err := value(patch, added); err != nil {
		return false, err
	}
	before := patch.Match.GetListener().GetFilterChain().GetFilter().GetSubFilter().GetName()
	at := slices.IndexFunc(m.HttpFilters, func(f *hcm.HttpFilter) bool { return before == "" || f.Name == before })
	if at < 0 {
		return false, nil
	}
	m.HttpFilters = slices.Insert(m.HttpFilters, at, added)
	return true, nil
}

// mergeRoutes applies a patch of virtual hosts or routes to the route configurations in the listeners.
func (p proxy) mergeRoutes(patch *patch) (int, error) {
	asked := patch.Match.GetRouteConfiguration()
	if asked.GetPortNumber() != 0 || asked.GetPortName() != "" || asked.GetGateway() != "" || asked.GetVhost().GetDomainName() != "" {
		return 0, errors.New("a match of routes that these tests do not know")
	}
	everywhere := &match{Context: patch.Match.GetContext()}
	changed := 0
	_, err := p.eachManager(everywhere, func(m *hcm.HttpConnectionManager) (bool, error) {
		if !named(asked.GetName(), m.GetRouteConfig().GetName()) {
			return false, nil
		}
		for _, host := range m.GetRouteConfig().GetVirtualHosts() {
			if !named(asked.GetVhost().GetName(), host.Name) {
				continue
			}
			did, err := mergeHost(host, patch, asked.GetVhost().GetRoute())
			if err != nil {
				return false, err
			}
			changed += did
		}
		return true, nil
	})
	return changed, err
}

func mergeHost(host *route.VirtualHost, patch *patch, asked *istio.EnvoyFilter_RouteConfigurationMatch_RouteMatch) (int, error) {
	if patch.ApplyTo == istio.EnvoyFilter_VIRTUAL_HOST {
		added := &route.VirtualHost{}
		err := value(patch, added)
		proto.Merge(host, added)
		return 1, err
	}
	if asked.GetAction() != istio.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY {
		return 0, errors.New("a match of actions that these tests do not know")
	}
	changed := 0
	for _, r := range host.Routes {
		if !named(asked.GetName(), r.Name) {
			continue
		}
		added := &route.Route{}
		if err := value(patch, added); err != nil {
			return changed, err
		}
		proto.Merge(r, added)
		changed++
	}
	return changed, nil
}
