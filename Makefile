# Steward: what can be done here. `make` alone lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help setup build demo test format lint test-unit test-kernel fuzz lab figures install uninstall clean distclean

# Arguments for the lab, such as LAB='--kernel host' or LAB='--contender stock'.
LAB ?=
# Parts of the names of kernel tests; empty for all.
TESTS ?=
steward := target/release/steward
steward_lab := target/release/steward-lab

# Where `make install` puts things; docs/how-to/install.md says what goes where. DESTDIR goes before every path.
PREFIX ?= /usr/local
DESTDIR ?=
# These have one place each, wherever the programs are.
specs_directory := /usr/lib/steward/specs
rules_directory := /usr/lib/steward/authority
polkit_directory := /usr/share/polkit-1/actions
tmpfiles_directory := /usr/lib/tmpfiles.d
completions := share/bash-completion/completions/steward share/zsh/site-functions/_steward \
	share/fish/vendor_completions.d/steward.fish

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what building and the lab need (Debian 12 or 13); changes nothing when all is there
	@bash lab/setup.sh

# What is measured says which commit it was.
build: export STEWARD_BUILD = $(shell git describe --always --dirty 2>/dev/null)
build: setup ## build everything, optimized
	cargo build --release --workspace --locked

demo: build ## a film under a fork bomb, with and without Steward, in a virtual machine: the table and a report
	$(steward_lab) run lab/scenarios/demo.toml $(LAB)

test: setup format test-unit test-kernel ## everything that CI checks

format: ## whether all is formatted
	cargo fmt --all --check

lint: format ## formatting and clippy
	@if $(has_clippy); then \
		echo cargo clippy; cargo clippy --workspace --all-targets --locked --quiet -- -D warnings; \
	else \
		echo "make lint: this Rust has no clippy: skipped" >&2; \
	fi

# Tests are built by clippy where there is one, which compiles as rustc does and finds what it finds on the way: to have
# it look at all first would take a minute or two more. What it warns of fails the build.
has_clippy := cargo clippy --version >/dev/null 2>&1
test-unit test-kernel: export RUSTC_WORKSPACE_WRAPPER = $(shell $(has_clippy) && command -v clippy-driver)
test-unit test-kernel: export RUSTFLAGS = -D warnings

# One seed for the random tests, so that the same commit has the same result everywhere. Plain `cargo test` draws a new one each time,
# and so does this for what docs/scheduler.md promises without exception.
test-unit test-kernel: export PROPTEST_RNG_SEED = 1

test-unit: ## the tests that need no kernel of their own
	cargo test --workspace --locked
	@seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); \
	echo "the scheduler's bounds on other machines than ever: PROPTEST_RNG_SEED=$$seed cargo test --workspace --test bounds"; \
	PROPTEST_RNG_SEED=$$seed cargo test --workspace --locked --quiet --test bounds

# A test that needs the virtual machine is marked #[ignore = "boots the lab's machine: make test-kernel"], in whichever crate.
# Two at a time: the clocks of those whose figures count advance with their own instructions.
test-kernel: ## the tests that run inside the virtual machine; TESTS='promises domains' runs those with such names
	@bash lab/test-kernel.sh $(TESTS)

fuzz: ## look for input that breaks something, ten minutes in all (FUZZ_SECONDS=600); needs rustup
	@bash fuzz/run.sh

lab: build ## run every scenario of lab/scenarios and report on each
	@for scenario in lab/scenarios/*.toml; do $(steward_lab) run "$$scenario" $(LAB); done

figures: build ## bring what `make lab` measured into README.md, docs/results.md and docs/figures
	$(steward_lab) figures

install: ## install what `make build` built (PREFIX=/usr/local, DESTDIR=)
	@test -x $(steward) -a -x target/release/stewardd -a -e target/release/libsteward.so || { echo "make install: run \`make build\` first" >&2; exit 1; }
	install -D -m 755 $(steward) $(DESTDIR)$(PREFIX)/bin/steward
	install -D -m 755 target/release/stewardd $(DESTDIR)$(PREFIX)/sbin/stewardd
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,lib/systemd/system share/man/man1 share/man/man5 share/man/man8)
	sed 's|/usr/sbin/stewardd|$(PREFIX)/sbin/stewardd|' crates/stewardd/systemd/stewardd.service \
		>$(DESTDIR)$(PREFIX)/lib/systemd/system/stewardd.service
	install -D -m 644 crates/stewardd/systemd/steward.tmpfiles.conf $(DESTDIR)$(tmpfiles_directory)/steward.conf
	install -d $(DESTDIR)$(specs_directory)
	install -m 644 specs/*.toml $(DESTDIR)$(specs_directory)
	install -D -m 644 crates/steward-core/src/authority/default.toml $(DESTDIR)$(rules_directory)/default.toml
	install -D -m 644 crates/stewardd/polkit/io.steward.policy $(DESTDIR)$(polkit_directory)/io.steward.policy
	install -D -m 644 target/release/libsteward.so $(DESTDIR)$(PREFIX)/lib/libsteward.so.0
	ln -sf libsteward.so.0 $(DESTDIR)$(PREFIX)/lib/libsteward.so
	install -m 644 target/release/libsteward.a $(DESTDIR)$(PREFIX)/lib/libsteward.a
	install -D -m 644 crates/libsteward-c/include/steward.h $(DESTDIR)$(PREFIX)/include/steward.h
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e "s|@VERSION@|$$($(steward) --version | cut -d ' ' -f 2)|" crates/libsteward-c/steward.pc.in \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/steward.pc
	install -D -m 755 target/release/libstewardserver.so $(DESTDIR)$(PREFIX)/lib/libstewardserver.so.0
	ln -sf libstewardserver.so.0 $(DESTDIR)$(PREFIX)/lib/libstewardserver.so
	install -m 644 target/release/libstewardserver.a $(DESTDIR)$(PREFIX)/lib/libstewardserver.a
	install -D -m 644 crates/steward-server-c/include/steward_server.h $(DESTDIR)$(PREFIX)/include/steward_server.h
	sed -e 's|@PREFIX@|$(PREFIX)|' -e "s|@VERSION@|$$($(steward) --version | cut -d ' ' -f 2)|" crates/steward-server-c/steward-server.pc.in \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/steward-server.pc
	$(steward) man $(DESTDIR)$(PREFIX)/share/man/man1
	$(steward) man --files $(DESTDIR)$(PREFIX)/share/man/man5
	target/release/stewardd --man >$(DESTDIR)$(PREFIX)/share/man/man8/stewardd.8
	for file in $(completions); do install -d "$(DESTDIR)$(PREFIX)/$${file%/*}"; done
	shells=(bash zsh fish); for file in $(completions); do \
		$(steward) completions "$${shells[0]}" >"$(DESTDIR)$(PREFIX)/$$file"; shells=("$${shells[@]:1}"); done
	@test -n "$(DESTDIR)" || echo "Now: systemd-tmpfiles --create steward.conf; systemctl daemon-reload; systemctl enable --now stewardd"

uninstall: ## remove what `make install` installed (same PREFIX and DESTDIR); /etc/steward and /var/lib/steward stay
	rm -f $(DESTDIR)$(PREFIX)/bin/steward $(DESTDIR)$(PREFIX)/sbin/stewardd
	rm -f $(DESTDIR)$(PREFIX)/lib/systemd/system/stewardd.service $(DESTDIR)$(tmpfiles_directory)/steward.conf
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/lib/libsteward.,so so.0 a) $(DESTDIR)$(PREFIX)/lib/pkgconfig/steward.pc
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/lib/libstewardserver.,so so.0 a) $(DESTDIR)$(PREFIX)/lib/pkgconfig/steward-server.pc
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/include/,steward.h steward_server.h)
	rm -f $(DESTDIR)$(PREFIX)/share/man/man8/stewardd.8
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/man/man5/steward.,toml.5 spec.5 authority.5 domain.5)
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/steward.1 $(DESTDIR)$(PREFIX)/share/man/man1/steward-*.1
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(completions))
	rm -f $(patsubst specs/%,$(DESTDIR)$(specs_directory)/%,$(wildcard specs/*.toml))
	rm -f $(DESTDIR)$(rules_directory)/default.toml $(DESTDIR)$(polkit_directory)/io.steward.policy
	@rmdir --ignore-fail-on-non-empty $(DESTDIR)$(specs_directory) $(DESTDIR)$(rules_directory) $(DESTDIR)$(dir $(specs_directory)) 2>/dev/null || true

clean: ## remove what was built (the cache of fetched packages stays)
	cargo clean
	rm -rf lab/reports .cache/base .cache/runs fuzz/target

distclean: clean ## remove the cache too
	rm -rf .cache
