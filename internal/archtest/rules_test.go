package archtest_test

import (
	"fmt"
	"slices"
	"strings"
)

// module is the path of the root module.
const module = "github.com/envoy-rls/envoy-rls"

// source is what the rules look at in one Go file.
type source struct {
	name    string // path below the root of the module
	pkg     string // directory below the root of the module
	test    bool   // a _test.go file
	imports []string
	inits   bool // declares func init
}

// broken gives one reason per rule that file breaks.
func broken(file source) []string {
	var reasons []string
	layer, known := layers[file.pkg]
	if !known {
		reasons = append(reasons, fmt.Sprintf("%s: package %s has no layer: give it a row in layers", file.name, file.pkg))
	}
	if file.inits && !file.test {
		reasons = append(reasons, file.name+": func init: what runs at import cannot be configured, ordered or tested")
	}
	for _, path := range file.imports {
		reason := ""
		if own, ok := strings.CutPrefix(path, module+"/"); ok {
			reason = brokenOwn(file, layer, own)
		} else if outside(path) {
			reason = brokenModule(file, path)
		}
		if reason != "" {
			reasons = append(reasons, fmt.Sprintf("%s imports %s: %s", file.name, path, reason))
		}
	}
	return reasons
}

// brokenOwn judges an import of one of the module's own packages. Test files may look upward: a limiter is tested on a
// real store.
func brokenOwn(file source, layer int, own string) string {
	target, known := layers[own]
	switch {
	case !known:
		return "the package has no layer"
	case file.test:
		return ""
	case testSupport[own]:
		return "only test files may use it"
	case target == layer:
		return fmt.Sprintf("both are in layer %d; packages of one layer don't know each other, internal/app joins them", layer)
	case target > layer:
		return fmt.Sprintf("layer %d must not know layer %d", layer, target)
	}
	return ""
}

// brokenModule judges an import from another module.
func brokenModule(file source, path string) string {
	mod := moduleOf(path)
	users, known := modules[mod]
	switch {
	case !known:
		return "a dependency that nobody decided on: add a line to docs/adr and a row to modules"
	case file.test:
		return ""
	case slices.Contains(users, testOnly) && testSupport[file.pkg]:
		return ""
	case slices.Contains(users, testOnly):
		return "only test files may use it"
	case stdlibOnly[file.pkg]:
		return file.pkg + " uses the standard library only"
	case !slices.Contains(users, file.pkg):
		return "only " + strings.Join(users, ", ") + " may use it"
	}
	return ""
}

// outside reports whether path is neither in the standard library nor in this module.
func outside(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".") && path != module
}

// moduleOf gives the longest known module that path lies in, or path itself.
func moduleOf(path string) string {
	best := ""
	for mod := range modules {
		if (path == mod || strings.HasPrefix(path, mod+"/")) && len(mod) > len(best) {
			best = mod
		}
	}
	if best == "" {
		return path
	}
	return best
}
