# `make help` lists the targets. Needs Go 1.26; run, test and check also Python 3 (the real Envoy comes from PyPI), test and
# check also Node, gcc, redis-server and PostgreSQL; cluster and run STORE=redis redis-server. Tools are installed at pinned versions into .tools/.
SHELL := bash
.DEFAULT_GOAL := help
FUZZTIME ?= 60s
STORE ?= memory
BENCH ?=
REDIS_URL ?=
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: help run cluster build test check lint bench fuzz fmt clean site

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

run: ## the demo: upstream, rate limiter and real Envoy on localhost:10000; STORE=redis: two limiters on a Redis Cluster
	@STORE='$(STORE)' REDIS_URL='$(REDIS_URL)' scripts/run.sh

cluster: ## a Redis Cluster on this machine: 4 primaries and 4 replicas in two zones, ports 7001 to 7008
	@scripts/cluster.sh

build: ## bin/envoy-rls
	@mkdir -p bin
	CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/envoy-rls ./cmd/envoy-rls

test: ## unit, property, race, docs and real-Envoy tests, short forms
	@scripts/ci-test.sh short

check: lint ## everything, long forms and fuzzing included (under an hour on two cores)
	@scripts/ci-test.sh long
	@scripts/fuzz.sh $(FUZZTIME)

lint: ## formatting, go vet, golangci-lint, go.mod, known vulnerabilities
	@scripts/lint.sh

bench: ## measure CPU, memory and latency beside an empty gRPC handler, and fail if a bar is missed; BENCH='-rows memory' for some rows
	@cd bench && go run ./cmd/rlsbench -check $(BENCH)

site: ## the documents as a site, in .run/site
	@scripts/site.sh

fuzz: ## every Fuzz function for FUZZTIME (60s) each
	@scripts/fuzz.sh $(FUZZTIME)

fmt: ## format the Go files in place
	@scripts/ci-tools.sh gofumpt
	@. scripts/ci-lib.sh && go_files | xargs gofumpt -w

clean: ## remove what the build, the demo and the tests left; tools in .tools/ stay
	rm -rf bin .run
	find . -path ./.tools -prune -o \( -name '*.test' -o -name '*.prof' \) -type f -exec rm -f {} +
