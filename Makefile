# The two set-up commands (make demo, make test) and shortcuts. CMake does the building.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= /usr/bin/python3
JOBS ?= $(shell nproc)
MODEL ?= smollm2-135m
QUESTION ?= What is photosynthesis?

.PHONY: help demo test build test-slow test-san test-fuzz test-arm test-clang check-style install

help: ## Lists the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## Installs what the build needs and builds build/release/bin/tensorsharp
	@scripts/install-deps.sh build
	cmake --preset release -DTENSORSHARP_ENABLE_TESTS=OFF -DTENSORSHARP_ENABLE_BENCH=OFF
	cmake --build --preset release -j $(JOBS)

demo: build ## Builds, fetches a small real model (98 MB), asks it a question
	model="$$($(PYTHON) tools/fetch_models.py $(MODEL))" && echo "model: $$model" && \
	  build/release/bin/tensorsharp run "$$model" -p "$(QUESTION)" -n 64 --greedy

test: ## Installs what the tests need, builds, runs the default tests
	@scripts/install-deps.sh test
	cmake --preset release -DTENSORSHARP_ENABLE_TESTS=ON -DTENSORSHARP_ENABLE_BENCH=OFF
	cmake --build --preset release -j $(JOBS)
	ctest --preset default -j $(JOBS)

test-slow: test ## Runs the suites that need a real model (fetches it)
	$(PYTHON) tools/fetch_models.py smollm2-135m >/dev/null
	ctest --test-dir build/release --output-on-failure -L slow -j $(JOBS)

# The programs that read hostile bytes or compute: what the sanitizers look at.
SAN_TESTS := base_test thread_pool_test codec_test format_test format_compat_gguf_test jinja_test \
             sampler_test tokenizer_test hf_tokenizer_test gguf_tokenizer_test kernels_per_isa_test \
             hadamard_test hadamard_contract_test rotated_models_test backend_test model_test \
             model_golden_test engine_test convert_test eval_test
ARM_TESTS := base_test codec_test kernels_per_isa_test
empty :=
space := $(empty) $(empty)
one_of = $(subst $(space),|,$(strip $(1)))

test-san: ## Builds with the address and undefined-behaviour sanitizers, runs the tests of SAN_TESTS
	@scripts/install-deps.sh ci
	cmake --preset asan -DTENSORSHARP_ENABLE_BENCH=OFF
	cmake --build --preset asan -j $(JOBS) --target $(SAN_TESTS)
	ctest --test-dir build/asan --output-on-failure -R '^($(call one_of,$(SAN_TESTS)))$$' -j $(JOBS)

test-fuzz: test ## Replays the fuzzing corpora
	ctest --test-dir build/release --output-on-failure -L fuzz -j $(JOBS)

test-arm: ## Cross-builds for 64-bit ARM, runs the tests of ARM_TESTS under emulation
	@scripts/install-deps.sh ci
	cmake --preset aarch64
	cmake --build --preset aarch64 -j $(JOBS) --target $(ARM_TESTS)
	ctest --test-dir build/aarch64 --output-on-failure -R '^($(call one_of,$(ARM_TESTS)))(_on_.*)?$$' -j $(JOBS)

test-clang: ## Builds the library and the programs with clang 14 (warnings are errors)
	@scripts/install-deps.sh ci
	cmake --preset clang -DTENSORSHARP_ENABLE_BENCH=OFF -DTENSORSHARP_ENABLE_TESTS=OFF
	cmake --build --preset clang -j $(JOBS)

check-style: ## Checks formatting, include directions and public headers
	@scripts/install-deps.sh ci
	git ls-files '*.cc' '*.h' '*.hpp' | xargs clang-format-14 --dry-run --Werror
	$(PYTHON) scripts/check_includes.py

install: build ## Installs under PREFIX (default /usr/local)
	cmake --install build/release --prefix $(or $(PREFIX),/usr/local)
