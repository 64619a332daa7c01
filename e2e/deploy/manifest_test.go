package deploy_test

import (
	"fmt"
	"strings"
)

// manifests are the objects that one overlay makes, as far as the checks look at them. There is one of each kind at the most.
type manifests struct {
	name       string // of the overlay
	text       string // as kustomize renders it
	Namespace  object
	Account    object
	Deployment deployment
	Service    service
	Budget     selecting
	Scaler     *scaler
	Network    networkPolicy
	Monitor    *serviceMonitor
	Priority   *object
	ConfigMaps map[string]map[string]string // name to file to text
}

type meta struct {
	Name, Namespace string
	Labels          map[string]string
}

type object struct {
	Kind                         string
	Metadata                     meta
	AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

// picks tells whether the selector picks what has these labels. One that is empty picks everything, which nobody means.
func (s selector) picks(labels map[string]string) bool {
	for name, value := range s.MatchLabels {
		if labels[name] != value {
			return false
		}
	}
	return len(s.MatchLabels) > 0
}

type deployment struct {
	Metadata meta
	Spec     struct {
		Replicas *int
		Selector selector
		Template struct {
			Metadata meta
			Spec     podSpec
		}
	}
}

type podSpec struct {
	ServiceAccountName            string `yaml:"serviceAccountName"`
	AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
	EnableServiceLinks            *bool  `yaml:"enableServiceLinks"`
	PriorityClassName             string `yaml:"priorityClassName"`
	TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
		SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	TopologySpreadConstraints []struct {
		TopologyKey   string   `yaml:"topologyKey"`
		LabelSelector selector `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
	Containers []container
	Volumes    []volume
}

type volume struct {
	Name      string
	ConfigMap *struct{ Name string } `yaml:"configMap"`
	Secret    *struct {
		SecretName string `yaml:"secretName"`
	}
	EmptyDir *struct{} `yaml:"emptyDir"`
}

type container struct {
	Name, Image string
	Args        []string
	Env         []variable
	Ports       []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Resources       struct{ Requests, Limits map[string]string }
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
	StartupProbe   *probe `yaml:"startupProbe"`
	ReadinessProbe *probe `yaml:"readinessProbe"`
	LivenessProbe  *probe `yaml:"livenessProbe"`
	Lifecycle      *struct {
		PreStop *struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// probes are those of the container, by what they are for.
func (c container) probes() map[string]*probe {
	return map[string]*probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe}
}

type variable struct {
	Name, Value string
	ValueFrom   *struct {
		ResourceFieldRef struct{ Resource string } `yaml:"resourceFieldRef"`
	} `yaml:"valueFrom"`
}

// value resolves what the kubelet resolves.
func (v variable) value(c container) (string, error) {
	if v.ValueFrom == nil {
		return v.Value, nil
	}
	kind, name, _ := strings.Cut(v.ValueFrom.ResourceFieldRef.Resource, ".")
	from := map[string]map[string]string{"requests": c.Resources.Requests, "limits": c.Resources.Limits}[kind]
	if from[name] == "" {
		return "", fmt.Errorf("%s refers to a resource that the container does not name", v.Name)
	}
	return from[name], nil
}

type probe struct {
	HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
	PeriodSeconds    int                         `yaml:"periodSeconds"`
	FailureThreshold int                         `yaml:"failureThreshold"`
}

type service struct {
	Metadata meta
	Spec     struct {
		ClusterIP string `yaml:"clusterIP"`
		Selector  map[string]string
		Ports     []struct {
			Name       string
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
	}
}

// selecting is what has nothing to check but whom it selects.
type selecting struct {
	Spec struct{ Selector selector }
}

type scaler struct {
	Spec struct {
		ScaleTargetRef struct{ Kind, Name string } `yaml:"scaleTargetRef"`
		MinReplicas    int                         `yaml:"minReplicas"`
		Metrics        []struct {
			Type string
			Pods struct {
				Metric struct{ Name string }
				Target struct {
					AverageValue string `yaml:"averageValue"`
				}
			}
		}
	}
}

type networkPolicy struct {
	Spec struct {
		PodSelector     selector `yaml:"podSelector"`
		PolicyTypes     []string `yaml:"policyTypes"`
		Ingress, Egress []rule
	}
}

type rule struct {
	From, To []struct {
		NamespaceSelector *selector `yaml:"namespaceSelector"`
		PodSelector       *selector `yaml:"podSelector"`
	}
	Ports []struct{ Protocol, Port string }
}

// serviceMonitor has all fields of one that are in use here: another is a fault.
type serviceMonitor struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   meta
	Spec       struct {
		Selector  selector
		Endpoints []struct{ Port, Path, Interval string }
	}
}
