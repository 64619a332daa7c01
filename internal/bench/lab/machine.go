package lab

import (
	"os"
	"runtime"
	"strings"

	"github.com/envoy-rls/envoy-rls/internal/bench/report"
)

// Machine is this one. version is that of envoy-rls.
func Machine(version string) report.Machine {
	return report.Machine{CPU: cpuModel(), Cores: runtime.NumCPU(), System: system(), Go: runtime.Version(), Version: version}
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // Linux; elsewhere the architecture must do
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func system() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return "Linux " + strings.TrimSpace(string(release))
}
