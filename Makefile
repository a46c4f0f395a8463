# Targets for people; `make help` lists them. Each is one plain command or a
# script in .ci/.

GO            ?= go
FUZZTIME      ?= 60s
TESTFLAGS     ?= -race -count=1 -p 2 -timeout 20m
LINT_VERSION  := v2.15.0
LINT           = $(CURDIR)/.cache/bin/golangci-lint-$(LINT_VERSION)-$(shell $(GO) env GOVERSION 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak bench lint fuzz check-go

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: check-go ## install what the tests need: Debian packages, Python environments
	@.ci/setup

demo: check-go ## watch four replicas form one report per tick
	$(GO) run ./cmd/solobeat demo

test: setup ## run all tests, race detector on; runs setup first
	@echo "go test $(TESTFLAGS) ./... (a first build takes a minute or two, once)"
	@.ci/clean-tree $(GO) run ./internal/testkit/testsum $(TESTFLAGS) ./...

soak: setup ## the long form of the soak: load under kills, restarts, stalls and losses
	SOLOBEAT_SOAK=long $(GO) test -count=1 -timeout 40m -v -run '^TestSoak$$' ./e2e

bench: setup ## measure beside Celery, asynq and lock libraries into bench/RESULTS.md (20 minutes); ONLY=locks for one group
	@$(GO) -C bench run . $(if $(ONLY),-only $(ONLY),-o RESULTS.md) $(BENCHFLAGS)

lint: check-go $(LINT) ## check style, imports and formatting
	$(GO) mod tidy -diff
	$(LINT) run ./...
	$(LINT) run --build-tags solobeat_failpoints ./...
	$(GO) -C bench mod tidy -diff
	cd bench && $(LINT) run ./...

fuzz: check-go ## run each fuzz target for FUZZTIME (60s)
	@.ci/fuzz $(FUZZTIME)

$(LINT):
	@echo "building golangci-lint $(LINT_VERSION) (takes a few minutes, once)"
	@GOBIN="$(CURDIR)/.cache/bin" GOFLAGS= $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@mv .cache/bin/golangci-lint "$@"

check-go:
	@case "$$($(GO) env GOVERSION 2>/dev/null)" in \
	go1.2[6-9]* | go1.[3-9][0-9]* | go[2-9]* | devel*) ;; \
	*) echo "Solobeat needs Go 1.26 or newer; found: $$($(GO) version 2>/dev/null || echo none)" >&2; \
	   echo "Install it from https://go.dev/dl/ and put its bin folder first on PATH." >&2; exit 1 ;; \
	esac
