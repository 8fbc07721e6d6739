# `make test` and `make demo` are each enough on a fresh Debian with g++, make and Python 3.11 or newer (python3-venv,
# python3-dev): they make .venv/, install pinned packages into it, build, install and run. Nothing outside this folder
# is changed. pip's own configuration is honoured, so a torch that it already reaches is used.
PYTHON ?= python3
JOBS ?= 2
# Of pytest. The sweep over PyTorch's operator database takes longer: `make sweep`.
ARGS ?= -n $(JOBS) --dist loadfile --ignore=tests/test_sweep.py
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/stamp

# A build must not load the backend that it is about to replace.
BUILD_ENV := TORCH_DEVICE_BACKEND_AUTOLOAD=0 CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) PATH="$(CURDIR)/$(BIN):$$PATH"
ifneq ($(shell command -v ccache),)
# Another clone of the same sources finds them in the cache, too.
BUILD_ENV += CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR="$(CURDIR)" CCACHE_NOHASHDIR=1
endif
PIP := TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(BIN)/python -m pip --disable-pip-version-check
SOURCES := pyproject.toml $(wildcard CMakeLists.txt cmake/*) $(shell find src tpu -type f -not -name '*.pyc' 2>/dev/null)

.PHONY: build test sweep demo wheel lint coverage clean help
build: $(STAMP)/installed  ## compile, and install the package into .venv

test: build $(STAMP)/test  ## all tests; ARGS="tests/test_x.py -k word" for some
	@$(BUILD_ENV) cmake -S . -B build -DTORCH_TPU_BUILD_TESTS=ON \
	  -DTORCH_TPU_PJRT_HEADER_DIR="$$(echo $(CURDIR)/$(VENV)/lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/include)" > /dev/null
	@$(BUILD_ENV) cmake --build build -- --quiet
	TORCH_TPU_PLUGIN="$$($(BIN)/python -P -c 'from torch_tpu import _plugin; print(_plugin.find().path)')" \
	  $(BIN)/ctest --test-dir build --output-on-failure
	$(BIN)/python -P -m pytest $(ARGS)

demo: build $(STAMP)/demo  ## sentence similarity, digits and a small GPT on the device, beside the CPU
	$(BIN)/python examples/demo.py

sweep: build $(STAMP)/test  ## each OpInfo and ModuleInfo of PyTorch, beside the CPU
	$(BIN)/python -P -m pytest -n $(JOBS) tests/test_sweep.py

wheel: $(STAMP)/build  ## dist/*.whl
	@$(BUILD_ENV) $(PIP) wheel -q --no-build-isolation --no-deps -w dist .
	@ls -lh dist/*.whl

lint: $(STAMP)/lint  ## format, lint and include directions
	$(BIN)/pre-commit run -a

coverage: build  ## write docs/coverage.md and docs/torch_tpu.md from what there is
	$(BIN)/python -P tools/write_coverage.py
	$(BIN)/python -P tools/write_interface.py

clean:  ## remove what was built, keep .venv
	rm -rf build dist demo_out $(STAMP)/installed

help:
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */  make \1\t/'

$(STAMP)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python's venv module is missing: apt install python3-venv"; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || \
	  { echo "Python's C headers are missing: apt install python3-dev"; exit 1; }
	@command -v g++ >/dev/null || { echo "A C++20 compiler is needed: apt install g++"; exit 1; }
	@echo "Making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install -qq pip==26.3
	@mkdir -p $(STAMP) && touch $@

# torch first, and with the versions that the build is tested with.
$(STAMP)/build: pyproject.toml | $(STAMP)/venv
	@echo "Installing torch, the CPU plugin and the build tools into $(VENV) ..."
	@$(PIP) install -qq --group runtime --group build
	@touch $@

$(STAMP)/test $(STAMP)/demo $(STAMP)/lint: $(STAMP)/%: pyproject.toml | $(STAMP)/venv
	@echo "Installing what $* needs ..."
	@$(PIP) install -qq --group $*
	@touch $@

# pip builds in this folder's build/, so that only what changed is compiled again.
$(STAMP)/installed: $(SOURCES) $(STAMP)/build
	@echo "Building ..."
	@$(BUILD_ENV) $(PIP) install --no-build-isolation --no-deps --force-reinstall -v . > $(VENV)/build.log 2>&1 || \
	  { grep -E 'error|Error|FAILED' -A5 $(VENV)/build.log | head -60; echo "The build failed: all of it is in $(VENV)/build.log"; exit 1; }
	@touch $@
