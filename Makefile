# The commands of this repository; "make help" lists them. Everything a target
# makes lies under bin/ or .cache/, which git ignores.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

GO ?= go
PREFIX ?= /usr/local
DESTDIR ?=
# The packages to test, and what "go test" is told besides. Tests that need root
# say so in their name, and only root runs them.
PKGS ?= ./...
TESTFLAGS ?= -timeout 20m $(if $(filter 0,$(shell id -u)),,-skip ^TestRoot)
# How long "make fuzz" spends on each target.
FUZZTIME ?= 20s

BIN := bin/hermes-wrap
TAGS := seccomp netgo osusergo
RELEASE := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.release=$(RELEASE) -linkmode external -extldflags "-static"
GOLANGCI := golangci-lint

export CGO_ENABLED := 1

.PHONY: help deps build demo demo-hermes test check lint fmt vet generate current bench soak supervise state fuzz prove kernels vulncheck sbom packages packages-test install uninstall clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install the missing system packages that a build and the demonstration need
	@.ci/deps build demo

build: ## build the one static binary, bin/hermes-wrap
	@.ci/deps --detect build
	$(GO) build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/hermes-wrap

demo: deps build ## wrap the bundled stand-in agent and show what was allowed and denied
	@testdata/demo.sh $(BIN)

demo-hermes: build ## the same against a real "hermes", when one is installed
	@command -v hermes >/dev/null || { echo "make demo-hermes: no command \"hermes\" on PATH; make demo uses the bundled stand-in" >&2; exit 1; }
	@testdata/demo.sh $(BIN) --hermes

# HERMES_WRAP_BIN is the binary that the tests run as a process. Root's tests
# of everyday programs run them as HERMES_TEST_USER.
test: build ## run the whole suite (PKGS=./policy for a part of it)
	@mkdir -p .cache
	HERMES_WRAP_BIN=$${HERMES_WRAP_BIN:-$(CURDIR)/$(BIN)} $(GO) test -json -count=1 -tags '$(TAGS)' $(TESTFLAGS) $(PKGS) \
		| $(GO) run ./test/tally

check: lint vet current ## lint, vet, and see that generated files are current

lint: ## golangci-lint with the rules of .golangci.yml
	$(GOLANGCI) run ./...

fmt: ## format the Go files as lint wants them
	$(GOLANGCI) fmt ./...

vet: ## go vet
	$(GO) vet -tags '$(TAGS)' ./...

generate: ## write the generated files again: schema, policy reference, embedded filters
	$(GO) generate -tags '$(TAGS)' ./...

current: ## fail when a generated file is not what "make generate" writes
	@before=$$(mktemp); trap 'rm -f "$$before"' EXIT; \
	git ls-files -z -- policy docs sandbox | xargs -0 sha256sum > "$$before"; \
	$(MAKE) --no-print-directory generate >/dev/null; \
	sha256sum --quiet --check "$$before" || { echo "generated files were out of date; commit what \"make generate\" wrote" >&2; exit 1; }

bench: build ## print the table of docs/budgets.md, measured on this machine (BENCHFLAGS=--json)
	@HERMES_WRAP_BIN=$(CURDIR)/$(BIN) $(GO) run ./bench $(BENCHFLAGS)

DURATION ?= 45s
soak: build ## run one sandbox under load with reloads and broken peers for DURATION (45s)
	HERMES_WRAP_BIN=$(CURDIR)/$(BIN) HERMES_SOAK=$(DURATION) $(GO) test -count=1 -v -tags '$(TAGS)' -timeout 0 ./test/soak

FILES ?= 50000
state: build ## kill commits, discards and snapshots over FILES (50000) files at random moments
	HERMES_WRAP_BIN=$(CURDIR)/$(BIN) HERMES_STATE_FILES=$(FILES) $(GO) test -count=1 -v -tags '$(TAGS)' -timeout 0 ./test/state
KILLS ?= 12
supervise: build ## kill a supervised gateway KILLS times within DURATION, at random
	HERMES_WRAP_BIN=$(CURDIR)/$(BIN) HERMES_SUPERVISE=$(DURATION) HERMES_SUPERVISE_KILLS=$(KILLS) $(GO) test -count=1 -v -tags '$(TAGS)' -timeout 0 -run Gateway ./test/supervise

fuzz: ## run each fuzz target for FUZZTIME
	@for pkg in $$($(GO) list -tags '$(TAGS)' $(PKGS)); do \
		for target in $$($(GO) test -tags '$(TAGS)' -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			$(GO) test -tags '$(TAGS)' -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

# The proof. Root names an ordinary user in HERMES_TEST_USER; SANDBOX puts
# another sandbox in our place; FUZZTIME is for each fuzz target.
SEED ?= 0
PROVE = HERMES_WRAP_BIN=$(CURDIR)/$(BIN) $(GO) run ./prove --seed $(SEED) $(if $(FUZZING),--fuzztime $(FUZZING))
prove: FUZZING = $(if $(filter command line environment,$(origin FUZZTIME)),$(FUZZTIME))
prove: build ## try to break out in every way known, and write docs/proof.md (SANDBOX='bwrap …' for another)
	@$(if $(findstring --only,$(PROVEFLAGS)),true,.ci/deps prove)
	@$(PROVE) $(if $(SANDBOX),--sandbox '$(SANDBOX)',--write docs/proof.md) $(PROVEFLAGS)

kernels: build ## boot Debian's kernels in QEMU and try the sandbox on each (as root)
	@.ci/deps prove
	@$(PROVE) --only kernels $(PROVEFLAGS)

vulncheck: ## look for known vulnerabilities that the binary can reach (GOVULNDB names the database)
	@packaging/vulncheck

sbom: build ## write what the binary is built from to bin/hermes-wrap.cdx.json
	@packaging/sbom $(BIN) $(BIN).cdx.json

packages: build ## make deb, rpm, apk and tarball in bin/packages
	@packaging/build $(BIN)

packages-test: packages ## install, use and remove each package on a clean root of its own (as root)
	@packaging/test bin/packages

install: build ## install the binary, completions and documents under PREFIX
	install -D -m 0755 $(BIN) $(DESTDIR)$(PREFIX)/bin/hermes-wrap
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(BIN) completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/hermes-wrap
	$(BIN) completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_hermes-wrap
	$(BIN) completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/hermes-wrap.fish
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/doc/hermes-wrap README.md LICENSE docs/*.md

uninstall: ## remove what install wrote
	rm -f $(DESTDIR)$(PREFIX)/bin/hermes-wrap $(DESTDIR)$(PREFIX)/share/bash-completion/completions/hermes-wrap \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_hermes-wrap $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/hermes-wrap.fish
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/hermes-wrap

clean: ## remove what the targets made
	rm -rf bin .cache
