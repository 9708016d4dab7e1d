# Steward: what can be done here. `make` alone lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help setup build demo test lint test-unit test-kernel lab clean distclean

# Arguments for the lab, such as LAB='--kernel host' or LAB='--contender stock'.
LAB ?=
steward := target/release/steward

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what building and the lab need (Debian 12 or 13); changes nothing when all is there
	@bash lab/setup.sh

build: setup ## build everything, optimized
	cargo build --release --workspace --locked

demo: build ## a film under a fork bomb, with and without Steward, in a virtual machine: the table and a report
	$(steward) lab run lab/scenarios/demo.toml $(LAB)

test: setup lint test-unit test-kernel ## everything that CI checks

lint: ## formatting and clippy
	cargo fmt --all --check
	@if cargo clippy --version >/dev/null 2>&1; then \
		echo cargo clippy; cargo clippy --workspace --all-targets --locked --quiet -- -D warnings; \
	else \
		echo "make lint: this Rust has no clippy: skipped" >&2; \
	fi

test-unit: ## the tests that need no kernel of their own
	cargo test --workspace --locked

# A test that needs the virtual machine is marked #[ignore = "boots the lab's machine: make test-kernel"], in whichever crate.
test-kernel: ## the tests that run inside the virtual machine, one after the other
	cargo build --release --workspace --locked
	cargo test --workspace --tests --locked -- --ignored --test-threads 1

lab: build ## run every scenario of lab/scenarios and report on each
	@for scenario in lab/scenarios/*.toml; do $(steward) lab run "$$scenario" $(LAB); done

clean: ## remove what was built (the cache of fetched packages stays)
	cargo clean
	rm -rf lab/reports .cache/base .cache/runs

distclean: clean ## remove the cache too
	rm -rf .cache
