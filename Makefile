# SPDX-License-Identifier: Apache-2.0
# Every target first installs its requirements; `make help` lists all. ARGS is passed on: make test ARGS="-k relu"
# Settings: PYTHON (for a new .venv), VENV, JOBS (parallel compilers), WORKERS (parallel tests; some only wait).

PYTHON ?= $(shell tools/find_python.sh)
VENV   ?= .venv
JOBS   ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
WORKERS ?= $(shell expr $(JOBS) + 1)
ARGS   ?=

py     := $(VENV)/bin/python
# ARGS="-n 0" runs tests one by one. An idle worker takes half of the tests of another.
# A test that hangs for 15 minutes fails, with the stacks of its threads.
workers := -n $(WORKERS) --dist=worksteal -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true
stamps := $(VENV)/stamps
# Includes folders: removing a file changes the time of its folder.
sources := $(shell find csrc python cmake -name __pycache__ -prune -o \( -type f -o -type d \) -print 2>/dev/null)

export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
# Use the environment's cmake and ninja, also if others are installed.
export PATH := $(abspath $(VENV))/bin:$(PATH)
# pip's own configuration, which may have additional package sources, is still used.
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test check test-no-device test-apple test-split test-cuda test-cluster test-shapes bench docs wheel lint format dev dev-test test-asan test-tsan check-macos clean distclean
.DELETE_ON_ERROR:
.NOTPARALLEL:

help:                  ## list the targets
	@echo "make demo and make test work in a fresh clone: they install and build all requirements."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---------------------------------------------------------------------------------------- the main commands
demo: announce-demo $(stamps)/package $(stamps)/group-demo    ## upscale a photograph with a network trained in PyTorch
	@$(py) examples/upscale.py $(ARGS)

test: announce-test $(stamps)/programs $(stamps)/group-test   ## all tests
	@MPSCNN_CPP_TESTS=build/release/tests $(py) -m pytest tests $(workers) $(ARGS)

check: lint $(stamps)/programs $(stamps)/group-test  ## lint, and a few cases of each test
	@MPSCNN_TIER=quick MPSCNN_CPP_TESTS=build/release/tests $(py) -m pytest tests $(workers) -q $(ARGS)

announce-%:
	@tools/announce.sh $* $(VENV) $(JOBS)

# For machines without a device, such as GitHub's virtual machines for macOS.
no-device := tests/test_weights.py tests/test_arrays.py tests/test_oracle.py tests/test_cpp.py tests/test_packaging.py
test-no-device: $(stamps)/package $(stamps)/group-test  ## import the package, and run the tests that need no device
	@$(py) -m mpscnn.config --json
	@$(py) tests/wheel_smoke.py
	@$(py) -m pytest $(no-device) -k "not (objective_c_example or smoke_test)" $(ARGS)

# openmps hides its extensions and enforces Apple's rules, so that the core takes the code paths of a Mac.
test-apple: $(stamps)/package $(stamps)/group-test  ## all tests of the package on a device with Apple's rules
	@MPSCNN_DEVICE=apple $(py) -m pytest tests $(workers) $(ARGS)

test-split: $(stamps)/package $(stamps)/group-test  ## all tests of the package with images in device memory
	@MPSCNN_ENGINE=split $(py) -m pytest tests $(workers) $(ARGS)

test-cuda: $(stamps)/package $(stamps)/programs $(stamps)/group-test  ## the CUDA engine on a GPU: rows, networks, training, compute-sanitizer
	@MPSCNN_CPP_TESTS=build/release/tests $(py) -m pytest tests/test_gpu.py $(ARGS)

test-cluster: $(stamps)/package $(stamps)/group-cluster $(stamps)/system-java  ## examples of Ray, Spark and Dask on 2,000 pictures, 3 minutes
	@$(py) -m pytest tests/cluster/test_examples.py $(ARGS)

ISAS ?= SSE41 AVX AVX2 AVX512_CORE DEFAULT
test-shapes: $(stamps)/package $(stamps)/group-test  ## compare every layer of tests/shapes.txt with PyTorch, on each instruction set of ISAS, 12 minutes
	@for isa in $(ISAS); do echo "== ONEDNN_MAX_CPU_ISA=$$isa"; \
	    MPSCNN_SHAPES=all ONEDNN_MAX_CPU_ISA=$$isa $(py) -m pytest tests/test_shapes.py -k all_rows $(workers) $(ARGS) || exit 1; done

bench: $(stamps)/package $(stamps)/group-bench $(stamps)/peers  ## kernels against NumPy and PyTorch; networks against PyTorch (channels_last), ONNX Runtime, OpenVINO
	@$(py) -m bench $(ARGS)

docs: $(stamps)/pictures $(stamps)/group-docs    ## the documentation as a website with fresh pictures, in build/docs
	@NO_MKDOCS_2_WARNING=1 MPSCNN_PICTURES=build/pictures $(VENV)/bin/mkdocs build $(ARGS)
	@echo "build/docs/index.html"

mutations: $(stamps)/group-test $(stamps)/group-build  ## mutation testing: check that tests detect small errors in kernels and networks
	@$(py) tools/mutations.py $(ARGS)

# ----------------------------------------------------------------------------------------------- development
dev: $(stamps)/group-build                      ## incremental build of the package with warnings as errors, in build/dev
	@[ -f build/dev/build.ninja ] || $(VENV)/bin/cmake --preset dev -DPython_EXECUTABLE=$(abspath $(py)) $(quiet_configure)
	@$(VENV)/bin/cmake --build --preset dev --target _core package
	@echo "Importable with PYTHONPATH=build/dev/package"

dev-test: dev $(stamps)/group-test              ## dev and the native test programs, then all tests on that build
	@$(VENV)/bin/cmake --build --preset dev
	@PYTHONPATH=build/dev/package MPSCNN_CPP_TESTS=build/dev/tests $(py) -m pytest tests $(workers) $(ARGS)

# One Debian package has the runtimes of both sanitizers.
tested-asan := tests
tested-tsan := tests/test_queue.py tests/test_command_buffer.py tests/test_threads.py tests/test_lifetime.py \
	tests/test_buffers.py tests/test_metal.py tests/test_metal_functions.py tests/test_nodes.py tests/test_num_threads.py \
	$(wildcard tests/test_mps_graph*.py) tests/network tests/training tests/cluster/test_server.py \
	$(patsubst %,'tests/test_cpp.py::test_program[%]',cpp_engine_team cpp_engine_plans cpp_engine_fusion cpp_engine_gpu cpp_engine_threads \
	objc_metal_commands objc_functions objc_mps_graph objc_mps_graph_training) \
	'tests/test_cpp.py::test_on_a_device_with_apples_rules[objc_metal_commands]'
test-asan:             ## all tests under AddressSanitizer and UBSan
test-tsan:             ## pool, queue, stream, graph, function, network and training tests under ThreadSanitizer
test-asan test-tsan: test-%: $(stamps)/group-build $(stamps)/group-test $(stamps)/system-asan
	@[ -f build/$*/build.ninja ] || $(VENV)/bin/cmake --preset $* -DPython_EXECUTABLE=$(abspath $(py)) $(quiet_configure)
	@$(VENV)/bin/cmake --build --preset $*
	@PYTHONPATH=build/$*/package MPSCNN_CPP_TESTS=build/$*/tests tools/sanitized.sh $* $(py) -m pytest $(tested-$*) $(workers) -p no:cacheprovider $(ARGS)

lint: $(stamps)/group-lint                      ## ruff, mypy, clang-format, house rules
	@tools/lint.sh $(VENV)/bin

format: $(stamps)/group-lint                    ## ruff format and clang-format, in place
	@tools/lint.sh $(VENV)/bin fix

check-macos: $(stamps)/group-build              ## compile, configure and link for macOS: make check-macos SDK=folder
	@tools/check_macos.sh "$(SDK)" $(py)

wheel: $(stamps)/group-build $(stamps)/group-wheel $(stamps)/system-wheel      ## a self-contained wheel in dist/, tried in a new environment
	@tools/make_wheel.sh $(VENV) "$(PYTHON)"

clean:                 ## remove the build results, but not the environment
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis $(stamps)/package $(stamps)/pictures $(stamps)/programs

distclean: clean       ## also remove the environment
	@rm -rf $(VENV)

# ---------------------------------------------------------------------------------------------- prerequisites
quiet_configure := --log-level=WARNING >/dev/null

ifeq ($(shell uname -s),Darwin)
debian = xcode-select -p >/dev/null || { echo "Xcode's command-line tools are missing: xcode-select --install" >&2; exit 1; }
else
debian = tools/debian_packages.sh "$(PYTHON)" $(1)
endif

$(stamps)/system: tools/debian_packages.sh
	@$(call debian,)
	@[ -x $(py) ] || tools/make_venv.sh "$(PYTHON)" $(VENV)
	@mkdir -p $(stamps) && touch $@

$(stamps)/system-asan: $(stamps)/system
	@$(call debian,libclang-rt-19-dev)
	@touch $@

$(stamps)/system-java: $(stamps)/system
	@$(call debian,openjdk-17-jre-headless)
	@touch $@

# Build requirements of GNUstep base (tools/make_foundation.sh), and advzip.
$(stamps)/system-wheel: $(stamps)/system
	@$(call debian,gobjc gnustep-make libffi-dev dpkg-dev make advancecomp)
	@touch $@

$(stamps)/group-%: pyproject.toml tools/make_venv.sh $(stamps)/system
	@tools/make_venv.sh "$(PYTHON)" $(VENV) $*
	@touch $@

# Benchmarks list the packages that are missing.
$(stamps)/peers: pyproject.toml $(stamps)/group-bench
	@tools/make_venv.sh "$(PYTHON)" $(VENV) peers || echo "The benchmarks go on without those packages." >&2
	@touch $@

$(stamps)/package: $(sources) CMakeLists.txt pyproject.toml tools/install_package.sh $(stamps)/group-build
	@tools/install_package.sh $(VENV)
	@touch $@

# The gallery: the examples are run again when one of them, or the package, has changed.
$(stamps)/pictures: $(stamps)/package $(stamps)/group-demo $(stamps)/group-train $(stamps)/group-cli $(wildcard examples/*.py) tools/make_pictures.py
	@echo "== pictures of the gallery"
	@$(py) tools/make_pictures.py --output build/pictures > build/pictures.log 2>&1 || { tail -n 40 build/pictures.log >&2; exit 1; }
	@touch $@

# The native test programs.
$(stamps)/programs: $(stamps)/package $(wildcard tests/cpp/* tests/objc/*)
	@echo "== building the native tests"
	@$(VENV)/bin/cmake --build build/release > build/programs.log 2>&1 || { tail -n 60 build/programs.log >&2; exit 1; }
	@touch $@
