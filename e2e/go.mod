module github.com/envoy-rls/envoy-rls/e2e

go 1.26.0

replace github.com/envoy-rls/envoy-rls => ../
