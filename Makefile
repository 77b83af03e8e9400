# One target a chore. `make demo` and `make test` work on a fresh machine with Python 3.11 or newer.

PYTHON ?= python3
VENV ?= .venv
TEST_WORKERS ?= 2
TEST_ARGS ?=

BIN := $(VENV)/bin
SAMPLES := profiles/samples

# of `make lab`: mixes of lab/mixes by name or any files, measured runs, and a factor on all times
MIX ?= half-light arrays
RUNS ?= 3
SCALE ?= 1
LAB_ARGS ?=

# of `make deb`: Debian's version number, in place of asad's and the commit's
DEB_VERSION ?=

# of `make chaos`: moments on a real Slurm, lives on one in memory, and the seed of both
MOMENTS ?= 100
LIVES ?= 900
# of `make fuzz` (inputs, processes at a time) and `make soak` (days of the cluster)
N ?= 1000000
WORKERS ?= 2
DAYS ?= 30
SEED ?= 1
# of `make store-year`: how much of the year, and whether it `passes` through the store or what it `leaves` is written
PART ?= 1
WAY ?= leaves

# for the browser and PostgreSQL tests, a real Slurm, network namespaces, units, metrics, job_submit.lua, other Slurms, packages, proxies
PACKAGES := chromium postgresql slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins munge mariadb-server \
	iproute2 systemd prometheus lua5.3 debootstrap man-db mandoc dpkg-dev nginx apache2-bin openssl
PROGRAMS := slurmctld slurmd slurmdbd sbatch munged mariadbd ip systemd-analyze prometheus lua5.3 debootstrap man mandoc \
	dpkg-parsechangelog nginx apache2 openssl

.PHONY: help demo lab chaos fuzz soak check test test-slurm test-vm test-deb deb bench bench-smoke store-year lint style \
	types imports docs screenshots clean system-packages
.DELETE_ON_ERROR:
# where it is set, every process compiles pytest's rewritten tests and asad itself anew: 15 s for each worker of a run
unexport PYTHONDONTWRITEBYTECODE
MAKEFLAGS += --no-print-directory

help:
	@echo 'make demo             replay two sample logs; writes demo/report.html, demo/generated.html'
	@echo 'make check            what a change needs first: lint, and the quick unit and property tests (2 minutes)'
	@echo 'make test             run all tests (TEST_ARGS="-k easy" picks some)'
	@echo 'make test-slurm       the tests on a real Slurm; RELEASE=trixie or sid: on the one of that Debian (as root)'
	@echo 'make test-vm          boot Debian with systemd and cgroup v2, install asad and lend there (as root, 10 minutes)'
	@echo 'make deb              build Debian packages into build/deb, and check them with lintian (needs debhelper and lintian)'
	@echo 'make test-deb         install, upgrade, remove and purge them in a virtual machine (as root, after make deb; BEFORE=FOLDER)'
	@echo 'make lab              mixes of real jobs on a real Slurm, without and with asad (as root; MIX=FILE RUNS=3 SCALE=1)'
	@echo 'make chaos            random faults on a real Slurm and on one in memory (as root; MOMENTS=100 LIVES=900 SEED=1)'
	@echo 'make fuzz             hostile input for every reader (N=1000000 inputs SEED=1 WORKERS=2, half an hour)'
	@echo 'make soak             a month of a busy cluster through the daemon: what grows? (DAYS=30 SEED=1, an hour)'
	@echo 'make lint             ruff, mypy and the import contract'
	@echo 'make bench            run the benchmarks'
	@echo 'make bench-smoke      run every benchmark once in its smallest form: does it still run?'
	@echo 'make store-year       a year of a large cluster through the state store, on SQLite and PostgreSQL: how large is it? (PART=1)'
	@echo 'make docs             fill in what the code says of itself, and build the pages into build/docs; a broken link fails'
	@echo 'make screenshots      draw the live page anew for the documentation (docs/images), in Chromium'
	@echo 'make system-packages  Debian: browser, PostgreSQL, Slurm and whatever else the tests need (as root)'
	@echo 'make clean            remove everything that these targets made'

# what `make lab` recorded of a real Slurm, then what generate.py made up
demo: $(VENV)/.installed-run
	@mkdir -p demo
	$(BIN)/asactl replay $(SAMPLES)/lab-cluster.sacct --nodes 2 --cores 1 --memory 4G --poll 2s \
		--store demo/asad.db --report demo/report.html
	$(BIN)/asactl replay $(SAMPLES)/generated-cluster.sacct.gz --nodes 16 --cores 32 --memory 128G \
		--store demo/asad.db --report demo/generated.html
	@echo "The pages: file://$(CURDIR)/demo/report.html (of a real Slurm, two cores)"
	@echo "           file://$(CURDIR)/demo/generated.html (made up, 512 cores)"

# The figures go to lab/result.json; the logs of all daemons to build/lab.
lab: $(VENV)/.installed-test
	$(BIN)/python -m lab $(MIX) --runs $(RUNS) --scale $(SCALE) --logs build/lab $(LAB_ARGS)

# The table and what failed go to build/fuzz; `python -m lab.fuzz --seed SEED --reader NAME --number NUMBER` repeats one input.
fuzz: $(VENV)/.installed-test
	$(BIN)/python -m lab.fuzz --inputs $(N) --seed $(SEED) --workers $(WORKERS) --out build/fuzz

soak: $(VENV)/.installed-test
	$(BIN)/python -m lab.soak --days $(DAYS) --seed $(SEED) --out build/soak.json

# Those that take more than a few seconds are marked `slow`, and left to `make test`.
check: lint
	$(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist worksteal -m 'not slow' tests/unit tests/property $(TEST_ARGS)

# The contract tests of replays run first and alone: they compile the scheduler into numba's cache, so that the workers do not each
# compile it again. What fails here fails below again, and is told there.
test: $(VENV)/.installed-test
	@mkdir -p build && rm -f build/tests.xml
	$(BIN)/python -m pytest -q tests/contract -k recorded > build/warm-up.log || true
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadgroup --durations 15 --junitxml build/tests.xml $(TEST_ARGS)

# On this machine's own Slurm they are part of `make test`. Another Debian is made once, in build/releases (2 GB each).
test-slurm: $(VENV)/.installed-test
	@mkdir -p build && rm -f build/slurm-$(or $(RELEASE),here).xml
	$(BIN)/python -m $(if $(RELEASE),lab.release $(RELEASE),pytest) tests/slurm tests/unit/test_slurm_records.py \
		--durations 15 --junitxml build/slurm-$(or $(RELEASE),here).xml $(TEST_ARGS)

# Random faults: on a real Slurm (a minute for each two), then on a Slurm in memory. A seed repeats what it found.
chaos: $(VENV)/.installed-test
	$(BIN)/python -m lab.chaos --moments $(MOMENTS) --seed $(SEED)
	CHAOS_LIVES=$(LIVES) CHAOS_SEED=$(SEED) $(BIN)/python -m pytest -q -s tests/unit/test_slurm_chaos.py

# Not part of `make test`: it takes minutes, and 4 GB in build/vm. build/vm/steps.txt tells what was done and seen.
test-vm: $(VENV)/.installed-test
	$(BIN)/python -m pytest tests/vm/test_enabling.py --durations 10 $(TEST_ARGS)
	$(BIN)/python -m pytest tests/vm/test_vm.py --durations 10 $(TEST_ARGS)

# Not part of `make test`: it takes minutes. The pages need mkdocs, in a version that Debian does not have.
deb: $(VENV)/.installed-test $(VENV)/.installed-docs
	$(BIN)/python debian/build_packages.py --out build/deb $(if $(DEB_VERSION),--version $(DEB_VERSION))

# The packages of build/deb, in the machine of `make test-vm`; build/vm/steps.txt tells what was done and seen. They are installed
# over the packages in the folder BEFORE, or over themselves under a lower number.
test-deb: $(VENV)/.installed-test
	$(if $(BEFORE),ASAD_DEB_BEFORE=$(BEFORE)) $(BIN)/python -m pytest tests/vm/test_packages.py --durations 10 $(TEST_ARGS)

bench: $(VENV)/.installed-test
	$(BIN)/python -m pytest benchmarks -s --durations 0

# What a year of 1 000 nodes and 2 million jobs leaves in the state store: minutes, and 3 GB of TMPDIR. `WAY=passes` writes each row of it, and
# lets it be summed up in its time: half an hour of CPU on SQLite alone.
store-year: $(VENV)/.installed-test
	$(BIN)/python -m pytest benchmarks/bench_store_year.py -s --of-year $(PART) -k $(WAY) $(TEST_ARGS)

bench-smoke: $(VENV)/.installed-test
	@mkdir -p build && rm -f build/benchmarks.xml
	$(BIN)/python -m pytest benchmarks -n $(TEST_WORKERS) --dist loadfile --smallest --junitxml build/benchmarks.xml

lint: style types imports

style: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-test
	$(BIN)/mypy

imports: $(VENV)/.installed-test
	$(BIN)/lint-imports --no-logo

docs: $(VENV)/.installed-docs
	$(BIN)/python -m docs.generate
	$(BIN)/mkdocs build --strict
	@echo "The documentation: file://$(CURDIR)/build/docs/index.html"

# Not part of `make docs`: letters of another Chromium or font are other bytes.
screenshots: $(VENV)/.installed-test
	ASAD_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q tests/browser/test_live_page_in_browser.py -k really $(TEST_ARGS)
	rm -f docs/images/live-page-dark.png

clean:
	rm -rf $(VENV) build dist demo *.egg-info papers/build papers/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find asad profiles sql plugins papers lab tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "asad needs Python 3.11 or newer, and $(PYTHON) is not; try make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# a stamp for each set of dependencies, renewed when a setup.cfg has changed; the papers' evaluations are tested, and run here alone
$(VENV)/.installed-run: EXTRA :=
$(VENV)/.installed-test: EXTRA := [test,mesos,cluster]
$(VENV)/.installed-test: PAPERS := --editable './papers[rl]'
$(VENV)/.installed-docs: EXTRA := [docs]
$(VENV)/.installed-docs: PAPERS := --editable ./papers
# pymesos alone: http-parser, which it wants, does not build on Python 3.11 and later, and asad_mesos stands in for it
# torch is pinned: what networks learn, and how fast, is that of one version
$(VENV)/.installed-%: setup.cfg papers/setup.cfg pyproject.toml tests/constraints.txt | $(VENV)/bin/python
	@# what an earlier checkout left under the names of then, whose entry points would count beside those of now
	@$(BIN)/python -m pip --disable-pip-version-check --quiet uninstall --yes asad asad-papers 2> /dev/null || true
	@rm -rf asad.egg-info papers/asad_papers.egg-info
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint tests/constraints.txt \
		--editable '.$(EXTRA)' $(PAPERS)
	$(if $(findstring mesos,$(EXTRA)),$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps pymesos==0.3.15)
	@touch $@

system-packages:
	@missing=""; \
	for program in $(PROGRAMS); do \
		PATH="$$PATH:/usr/sbin:/sbin" command -v $$program > /dev/null || missing="$$missing $$program"; \
	done; \
	[ -x /usr/bin/chromium ] || [ -x /usr/bin/google-chrome ] || missing="$$missing chromium"; \
	{ ls /usr/lib/postgresql/*/bin/initdb || command -v initdb; } > /dev/null 2>&1 || missing="$$missing initdb"; \
	ls /usr/lib/*/slurm-wlm/task_cgroup.so > /dev/null 2>&1 || missing="$$missing slurm-wlm-plugins"; \
	if [ -z "$$missing" ]; then \
		echo "all packages are there"; \
	elif ! command -v apt-get > /dev/null; then \
		echo "no apt-get here: install with this system's own means what brings$$missing"; exit 1; \
	elif [ "$$(id -u)" != 0 ]; then \
		echo "missing:$$missing; only root can install packages: sudo make system-packages"; exit 1; \
	else \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends $(PACKAGES); \
	fi
