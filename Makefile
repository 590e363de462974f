# SPDX-License-Identifier: GPL-2.0-only
# Two commands do all the set-up: `make try` (see it work) and `make test` (see it hold).

include script/clang.mk

DROVER := target/release/drover
OUT := out
# What is run once is compiled for speed of compiling: Cargo.toml says how. The policy is compiled as ever.
QUICK := --profile quick --locked

.PHONY: help
help:
	@echo 'make try     real KVM VMs under the real scheduler, in virtual hosts; some minutes'
	@echo 'make try ON=host  the same on this machine, if it has KVM and sched_ext: asks first'
	@echo 'make test    everything that is promised, checked'
	@echo 'make evidence  the tests in the lab with all the repeats that are promised; an hour and more'
	@echo 'make trial   a scenario in the simulator, seconds after a change of the policy; FILE=scenarios/cost.toml SEEDS=10 JSON=out.json'
	@echo 'make python-test  the Python package for results, a sweep on Ray, the example notebook'
	@echo 'make slurm-test  a sweep on a Slurm of one node; as root, with the package slurm-wlm'
	@echo 'make rules-test  the rules and alerts for Prometheus, by promtool of the package prometheus'
	@echo 'make docs    these documents as a site with a search, into out/docs'
	@echo 'make web-test  the page of `drover web` in a browser, and what it costs; with chromium and chromium-driver'
	@echo 'make lint    formatting, warnings, function length'
	@echo 'make install  PREFIX=/usr/local DESTDIR=; make deb, make rpm: packages, into out/'
	@echo 'make dist    a release of the last commit into out/dist: source, static binary, packages; TWICE=1 builds it twice'
	@echo 'make boot-test  a Debian with systemd lives with the package, in a virtual host; KERNEL=6.18'
	@echo 'make boot-test MANAGER=libvirt  a machine manager orders about there: libvirt, incus or podman; a quarter of an hour'
	@echo "make selftests  the kernel's selftests of cgroups, under EEVDF and under Drover; KERNEL=6.18"
	@echo 'make bench   cost of the scheduler beside its peers; speed of the simulator beside SimSo'
	@echo 'make peers   VM scenarios under Drover, EEVDF and other sched_ext schedulers, into docs/peers.md; 3 hours at most'
	@echo 'make soak    the policy against random hosts and faults; SECONDS=120'
	@echo 'make soak AGAINST=eevdf  random hosts where nothing is set: who loses by Drover? SECONDS=1200'
	@echo 'make sim-sanitize  the simulator and its fault rig, the policy under ASan and UBSan'
	@echo 'make mutants faults planted in the policy, does a test notice? into docs/mutants.md; COUNT=100 SEED=1'
	@echo 'make mechanisms  mechanisms of the seed documents taken out, does their test fail? into docs/mechanisms.md'
	@echo 'make compare simulator against lab, into docs/fidelity.md; 20 minutes on a quiet machine'
	@echo 'make seeds   what the five seed documents claim, measured in the simulator, into docs/seeds.md; half an hour'
	@echo 'make attacks  hostile users and VMs against a host in the lab, does a quiet VM notice? KERNEL=6.18 UNDER=eevdf JOBS="hoard"'
	@echo 'make fuzz    what others write, fed with noise; INPUTS=2000000 for each reader'
	@echo 'make hooks   run the lint before each commit'

.PHONY: setup
setup:
	@script/setup

# What building and the lab take, without what only tests and packages do.
.PHONY: setup-build
setup-build:
	@script/setup --build

.PHONY: build
build: setup-build
	cargo build --release --locked

# On the lab, or on this machine if it has KVM, sched_ext and root: that asks first.
ON ?= lab
TRY := target/quick/drover
.PHONY: try
try:
	$(if $(filter host,$(ON)),@script/try-sizes >/dev/null)
	@script/setup --build
	cargo build $(QUICK) -p drover
	@mkdir -p $(OUT)
ifeq ($(ON),host)
	sizes=$$(script/try-sizes) && eval "$(if $(filter 0,$(shell id -u)),,sudo) $(TRY) run scenarios/try.toml --on host \
		--repeats 3 $$sizes --json $(OUT)/try-host.json"
	@echo 'To show it to others, attach $(OUT)/try-host.json: figures, kernel and CPU, no names.'
else
	$(TRY) run scenarios/try.toml --on $(ON) --check --json $(OUT)/try.json
	@echo
	@echo 'What next:'
	@echo '  $(TRY) run scenarios/barrier-2to1.toml --on lab      the first row in depth, on real time'
	@echo '  $(TRY) check                                         is this machine fit for it?'
	@echo '  make build && sudo $(DROVER) serve               schedule this machine; Ctrl-C undoes it'
endif

.PHONY: test
test: setup lint policy-test
	cargo test --workspace $(QUICK) --no-fail-fast

# The lab's tests with all the repeats that are promised: an hour and more.
.PHONY: evidence
evidence: setup
	DROVER_TEST_AT_LENGTH=1 cargo test $(QUICK) -p drover --test lab_faults --no-fail-fast

# The Python package, Ray's workers and the notebook. Fetches what it needs from PyPI.
PYTHON := $(abspath $(OUT))/python
.PHONY: python-test
python-test: setup
	cargo build $(QUICK) -p drover
	test -x $(PYTHON)/bin/pytest || python3 -m venv $(PYTHON)
	$(PYTHON)/bin/pip install --quiet --editable './python[ray,test]'
	cd python && PATH="$(PYTHON)/bin:$(CURDIR)/target/quick:$$PATH" $(PYTHON)/bin/pytest

# A sweep on a Slurm of one node, which is set up and taken down here. As root, with Debian's slurm-wlm.
.PHONY: slurm-test
slurm-test: setup
	cargo build $(QUICK) -p drover
	script/slurm-test target/quick/drover

# The page of `drover web` in a browser. With Debian's chromium and chromium-driver.
.PHONY: web-test
web-test: setup
	cargo build $(QUICK) -p drover
	script/web-test target/quick/drover $(OUT)

# What Prometheus makes of the figures of a fleet. With promtool, of Debian's package prometheus.
.PHONY: rules-test
rules-test:
	promtool check rules packaging/alerts.yml packaging/fleet.yml
	promtool test rules packaging/test-rules.yml

.PHONY: policy-test
policy-test:
	$(MAKE) -j $(shell nproc) -C policy/test test

# The simulator alone. The first build shows how it gets on.
FILE ?= scenarios/esx-fig3-shares.toml
TRIAL := target/trial/examples/trial
.PHONY: trial
trial:
	$(if $(wildcard $(TRIAL)),,@echo 'trial: compiles the simulator, its rivals and what they need, once: 2 to 4 minutes on two cores, then seconds after a change')
	@cargo run $(if $(wildcard $(TRIAL)),--quiet) --profile trial --locked -p drover-sim --example trial -- \
		$(FILE) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(JSON),--json $(JSON))

# The documents as a site. Compiles mdbook, once.
.PHONY: docs
docs:
	script/docs $(OUT)

.PHONY: lint
lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(QUICK) -- -D warnings
	script/lint-c

PREFIX ?= /usr/local
VERSION := $(shell sed -n '0,/^version = "\(.*\)"/s//\1/p' Cargo.toml)
.PHONY: install deb rpm
install: build
	packaging/install $(DROVER) '$(DESTDIR)' $(PREFIX)

deb rpm: setup build
	packaging/build $@ $(DROVER) $(VERSION) $(OUT)

# A release, with tools of its own from the crates registry. TWICE=1: from two directories, and both must be the same.
.PHONY: dist
dist: setup
	script/dist $(OUT)/dist $(if $(TWICE),twice)

# A Debian with systemd as PID 1 lives with the package, or with a machine manager, in a virtual host. As root, with
# mmdebstrap.
.PHONY: boot-test
boot-test: setup build
	packaging/build deb $(DROVER) $(VERSION) $(OUT)/from
	packaging/build deb $(DROVER) $(VERSION)+next $(OUT)/to
	packaging/boot-test $(or $(MANAGER),package) $(DROVER) $(OUT) $(if $(KERNEL),--kernel $(KERNEL))

# Others' tests of what a scheduler does with cgroups. Fetches the kernel's source from the machine's archive.
.PHONY: selftests
selftests: setup build
	script/selftests $(DROVER) $(OUT) $(if $(KERNEL),--kernel $(KERNEL))

.PHONY: bench
bench: setup build
	script/bench

# Beside every other scheduler that a host could run; what has run is kept in out/peers/. The newest kernel first.
KERNELS ?= 7.3 7.2 6.18
.PHONY: peers
peers: build
	script/compare-peers $(DROVER) $(KERNELS)

# Failing trials are shrunk and kept: of faults where the tests find them, of those who lose in out/ until
# they are mended.
SECONDS ?= 120
FROM ?= 1
.PHONY: soak
soak: build
	@mkdir -p $(OUT)
	$(DROVER) soak --seconds $(SECONDS) --from $(FROM) \
		$(if $(AGAINST),--against $(AGAINST) --keep $(OUT),--keep crates/drover-sim/regressions)

# The policy as the simulator runs it, where memory is checked: a run of the rig touches what the policy's
# own tests do not. Rust code is linked beside it, not checked. With --target the tools of the build are
# built without.
SANITIZE := -fsanitize=address,undefined
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
HOST_ = $(subst -,_,$(HOST))
.PHONY: sim-sanitize
sim-sanitize: setup
	CC_$(HOST_)=$(CLANG) RUSTFLAGS='-Clinker=$(CLANG) -Clink-arg=$(SANITIZE)' \
		CFLAGS_$(HOST_)='$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer -g' \
		cargo test --release --locked -p drover-sim --lib --tests --target $(HOST) --target-dir target/sanitize

# What others write, read by the daemon and the commands: no input may end them. Developers only; takes a
# nightly compiler and cargo-fuzz. Without the address sanitizer: the code that reads is safe Rust.
FUZZED := socket config scenario results libvirt lists
INPUTS ?= 2000000
.PHONY: fuzz
fuzz: setup
	@cargo +nightly fuzz --version >/dev/null || { echo 'cargo install cargo-fuzz, and a nightly compiler'; exit 1; }
	for target in $(FUZZED); do \
		mkdir -p fuzz/corpus/$$target; \
		cargo +nightly fuzz run --sanitizer none $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
			-runs=$(INPUTS) -max_len=4096 || exit 1; \
	done

# What users and VMs of a host try against it: attacks/README.md. Not part of `make test`.
.PHONY: attacks
attacks: build
	attacks/run $(DROVER) $(if $(KERNEL),--kernel $(KERNEL)) $(if $(UNDER),--under $(UNDER)) $(JOBS:%=attacks/%.job)

# Which of the tests of the policy can fail: docs/mutants.md. Developers only; not part of the command.
COUNT ?= 100
SEED ?= 1
.PHONY: mutants
mutants: setup
	cargo build --release --locked -p drover-mutate
	target/release/drover-mutate --clang $(CLANG) --count $(COUNT) --seed $(SEED)

# Can the tests that show the seeds' mechanisms fail: docs/mechanisms.md. Developers only.
.PHONY: mechanisms
mechanisms: setup
	cargo build --release --locked -p drover-mutate
	target/release/drover-mutate --mechanisms

COMPARED := esx-fig3-shares equal-shares-1-2-8 halved-demand mixed-load esx-fig4-reservation \
	esx-fig5-limit pools-departments reserved-sleeper sleep-vs-busy barrier-2to1 lock-2to1 total-work \
	eevdf-shares eevdf-shares-two-nodes
.PHONY: compare
compare: build
	$(DROVER) compare --out docs/fidelity.md $(COMPARED:%=scenarios/%.toml)

# What has run with the same sources and meaning is not run again; it is kept in out/seeds/.
.PHONY: seeds
seeds: build
	$(DROVER) seeds

# The picture of a report in the README. Developers only; takes Chromium.
REPORTED := $(abspath $(OUT))/barrier-2to1.html
.PHONY: report-picture
report-picture: build
	@mkdir -p $(OUT)
	$(DROVER) run scenarios/barrier-2to1.toml --on sim --report $(REPORTED)
	chromium --headless --no-sandbox --hide-scrollbars --window-size=1280,1030 \
		--screenshot=$(abspath docs/report.png) file://$(REPORTED)

# The picture of `drover top` in the README. Developers only; takes tmux.
.PHONY: top-picture
top-picture: build
	script/top-picture $(DROVER) docs/top.svg

.PHONY: hooks
hooks:
	git config core.hooksPath script/hooks
