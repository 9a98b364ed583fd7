# make quick   while you work: lint, types, the first case of each test that takes no time (a minute)
# make test    everything that must pass: lint, types, the documentation, all tests that are not slow
# make test-all  the slow tests too, and other compilers, processors and systems: clang, aarch64, windows, macos
# make planted   proves the tests: faults planted in copies of the sources, each of which a test must see
# make sanitize  the tests of kernels and operators under AddressSanitizer, UBSan and ThreadSanitizer
# make clang   the tests of kernels on what clang compiles
# make aarch64  the same on an emulated 64-bit ARM
# make windows  the operators cross-compiled for Windows, and their tests in ONNX Runtime's library for it under wine
# make macos   module and operators compiled for macOS; nothing is run
# make demo    Octavo on a real model, beside other quantizers, in four minutes (two and a half with a wheel in dist/)
# make docs    the documentation, in build/site/index.html
# make wheel   wheels for x86-64 and aarch64 and an sdist in dist/, each tried in an environment of its own
# make bench   all figures, written to benchmarks/results (two hours; the machine must be idle)
# Needs python3 (3.10 or newer), gcc, g++ and make; the rest comes through pip, chromium through apt-get.

PYTHON ?= python3
VENV := .venv
OLDEST := .venv-ort117
OF_OPSET_23 := .venv-ort123
TENSORFLOW := .venv-tf
OPTIMUM := .venv-optimum
PY := $(VENV)/bin/python
PIP := -m pip install --disable-pip-version-check --progress-bar off
# What compiles Octavo: scikit-build-core gives CMake five seconds to say its version, and 20 where CI is set. Too few
# on a busy machine.
BUILD := env CI=1
# Says what a command is doing while it runs, and how long it took; all of its words where it fails.
STEP := $(PYTHON) -m benchmarks.steps

# What no other test calls is checked at least for its types.
TYPED := -p octavo -p benchmarks $(foreach script,release clang windows macos aarch64,-m tests.$(script).run) \
    -m tests.native.sanitize -m tests.everything -m tests.planted.check

.PHONY: setup browser demo quick test test-all planted sanitize clang aarch64 windows macos wheel bench docs check clean

setup: $(VENV)/.stamp $(OLDEST)/.stamp $(OF_OPSET_23)/.stamp

# Again when the dependencies or the native module change.
$(VENV)/.stamp: pyproject.toml CMakeLists.txt $(shell find native -type f)
	@$(PY) -m pip --version > /dev/null 2>&1 || $(STEP) "making $(VENV)" $(PYTHON) -m venv --clear $(VENV)
	@$(STEP) "installing Octavo, compiled, and what its tests need in $(VENV) (three to five minutes the first time)" \
	    $(BUILD) $(PY) $(PIP) --verbose --editable '.[dev]'
	@touch $@

# The scripts of `make bench`; each is run whatever the ones before it found.
FIGURES := kernels kernel_tables older_cpus rnn models families decoders quantized_files convert tune hub newcomer

# The peers that only benchmarks need. They leave PyTorch's release as it is.
$(VENV)/.bench: pyproject.toml | $(VENV)/.stamp
	@$(STEP) "installing the peers in $(VENV) (a minute)" $(BUILD) $(PY) $(PIP) --editable '.[dev,bench]'
	@touch $@

# What builds and checks a release.
$(VENV)/.release: pyproject.toml | $(VENV)/.stamp
	@$(STEP) "installing what checks a release in $(VENV) (half a minute)" $(BUILD) $(PY) $(PIP) --editable '.[dev,release]'
	@touch $@

# The oldest ONNX Runtime that converted models must run on. It has no wheels after Python 3.12;
# there the environment stays empty, and the tests that need it are skipped.
$(OLDEST)/.stamp:
	@mkdir -p $(OLDEST)
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13))'; then \
	    $(PYTHON) -m venv --clear $(OLDEST) && \
	    $(STEP) "installing the oldest ONNX Runtime in $(OLDEST) (20 seconds)" $(OLDEST)/bin/python $(PIP) onnxruntime==1.17.3 'numpy<2' 'onnx<1.17'; \
	fi
	@touch $@

# The first ONNX Runtime that runs models of opset 23, as PyTorch's exporter may write them. It has no
# wheels after Python 3.13.
$(OF_OPSET_23)/.stamp:
	@mkdir -p $(OF_OPSET_23)
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 14))'; then \
	    $(PYTHON) -m venv --clear $(OF_OPSET_23) && \
	    $(STEP) "installing ONNX Runtime 1.23 in $(OF_OPSET_23) (20 seconds)" $(OF_OPSET_23)/bin/python $(PIP) onnxruntime==1.23.2; \
	fi
	@touch $@

# TensorFlow and tf2onnx, for the slow tests of SavedModels: 1.6 GB. Octavo itself is found in .venv.
# TensorFlow has no wheels for every Python; where it has none the environment stays empty, and the
# tests that need it are skipped, and say so.
$(TENSORFLOW)/.stamp: | $(VENV)/.stamp
	@rm -rf $(TENSORFLOW) && mkdir -p $(TENSORFLOW)
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 14))'; then \
	    $(PYTHON) -m venv --clear $(TENSORFLOW) && \
	    $(STEP) "installing TensorFlow in $(TENSORFLOW) (two minutes)" $(TENSORFLOW)/bin/python $(PIP) tensorflow-cpu==2.21.0 tf2onnx==1.17.0 && \
	    octavo=$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	    there=$$($(TENSORFLOW)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	    echo "import site; site.addsitedir('$$octavo')" > "$$there/octavo.pth"; \
	fi
	@touch $@

# optimum and sentence-transformers' ONNX backend, for the slow tests of exported folders. They want
# transformers 4.57, beside which everything else is found in .venv.
$(OPTIMUM)/.stamp: | $(VENV)/.stamp
	@rm -rf $(OPTIMUM) && mkdir -p $(OPTIMUM)
	@$(PYTHON) -m venv --clear $(OPTIMUM) && \
	    $(STEP) "installing optimum in $(OPTIMUM) (half a minute)" $(OPTIMUM)/bin/python $(PIP) --no-deps optimum-onnx==0.1.0 optimum==2.1.0 \
	        transformers==4.57.6 'tokenizers>=0.22,<=0.23.0' 'huggingface_hub<1' \
	        sentence-transformers==5.7.0 && \
	    $(STEP) "installing requests in $(OPTIMUM)" $(OPTIMUM)/bin/python $(PIP) requests && \
	    octavo=$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	    there=$$($(OPTIMUM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	    echo "import site; site.addsitedir('$$octavo')" > "$$there/octavo.pth"
	@touch $@

# The pages of reports are tested in Debian's chromium. Where it cannot be installed those tests are
# skipped, and say so.
browser:
	@if [ -z "$$OCTAVO_CHROMIUM" ] && [ "$$(id -u)" = 0 ] && \
	    ! command -v chromium >/dev/null && command -v apt-get >/dev/null; then \
	    $(STEP) "installing chromium, for the tests of pages (a minute)" sh -c 'apt-get update && \
	      DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium' || \
	        echo "chromium could not be installed: the tests of pages are skipped"; \
	fi

# In an environment of its own, .venv-demo.
demo:
	@$(PYTHON) -m benchmarks.demo_setup

# Many tests start Octavo afresh: without bytecode each of them would compile it again.
quick test test-all planted: export PYTHONDONTWRITEBYTECODE :=

# One case of each test that is cheap; types are checked meanwhile.
quick: $(VENV)/.stamp
	@$(PY) -m ruff check --quiet
	@$(PY) -m ruff format --check --quiet
	@$(PY) -m mypy $(TYPED) --no-error-summary & types=$$!; \
	    $(PY) -m pytest --quick --quiet -n 2 --dist loadfile; tests=$$?; \
	    wait $$types && exit $$tests

# pytest comes last, so that its count ends the output.
test: setup browser check docs
	@$(PY) -m pytest -n 2 --dist loadfile -m 'not slow and not real_time'

# Its last lines say what did not run, too: a failure, unless OCTAVO_ALLOW_MISSING=1.
test-all: setup $(TENSORFLOW)/.stamp $(OPTIMUM)/.stamp browser check docs
	@$(PY) -m tests.everything

# Each fault of tests/planted in a copy, and the tests that mirror its place (half an hour).
planted: $(VENV)/.stamp
	@$(PY) -m tests.planted.check

# The tests of kernels and operators under the address, undefined behaviour and thread sanitizers.
sanitize: setup
	@$(PY) -m tests.native.sanitize

# The kernel tests on a core that clang has compiled, in build/clang.
clang: $(VENV)/.stamp
	@$(PY) -m tests.clang.run

# The operators in ONNX Runtime's library for Windows; makes what it needs in build/windows.
windows: $(VENV)/.stamp
	@$(PY) -m tests.windows.run

# Compiled by zig's clang, in build/macos.
macos: $(VENV)/.stamp
	@$(PY) -m tests.macos.run

# The kernel tests on aarch64, emulated; makes what it needs in build/aarch64.
aarch64: $(VENV)/.stamp
	@$(PY) -m tests.aarch64.run

wheel: setup $(VENV)/.release
	@$(PY) -m tests.release.run

bench: setup browser $(VENV)/.bench
	@missed=; for script in $(FIGURES); do $(PY) -m benchmarks.$$script || missed="$$missed $$script"; done; \
	    if [ -n "$$missed" ]; then echo "figures were missed, or not measured:$$missed"; exit 1; fi

# Warnings are errors: links that lead nowhere, pages that no menu names, docstrings that do not fit.
# To search in it: python3 -m http.server --directory build/site
docs: $(VENV)/.stamp
	@NO_MKDOCS_2_WARNING=1 $(STEP) "building the documentation (half a minute)" $(PY) -m mkdocs build --strict
	@echo "wrote build/site/index.html"

check: $(VENV)/.stamp
	@$(PY) -m ruff check --quiet
	@$(PY) -m ruff format --check --quiet
	@$(STEP) "checking types (a minute the first time)" $(PY) -m mypy $(TYPED) --no-error-summary

# Leaves the environments; to be rid of them, remove .venv, .venv-ort117, .venv-tf, .venv-optimum and .venv-demo.
clean:
	@rm -rf build dist .mypy_cache .ruff_cache .hypothesis .pytest_cache
	@find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
