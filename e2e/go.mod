module github.com/envoy-rls/envoy-rls/e2e

go 1.26.0

replace github.com/envoy-rls/envoy-rls => ../

require (
	github.com/envoy-rls/envoy-rls v0.0.0-00010101000000-000000000000
	github.com/rogpeppe/go-internal v1.16.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/tools v0.26.0 // indirect
)
