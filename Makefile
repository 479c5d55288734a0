# SPDX-License-Identifier: Apache-2.0
# quern's front door; `make help` lists what it does. CMake and Ninja do the work.
BUILD   ?= build/release
PRESET  ?= release
# A choice of targets stays until another is made; make test asks for all targets.
TARGETS ?= $(or $(shell sed -n 's/^QUERN_TARGETS:STRING=//p' $(BUILD)/CMakeCache.txt 2>/dev/null),default)
PREFIX  ?= /usr/local
DESTDIR ?=
MODEL   ?=
AITER   ?=
JOBS    ?= $(shell nproc)
export PATH := $(CURDIR)/build/tools/bin:$(PATH) # what tools/setup.sh fetches where the system's is too old

# The other presets have targets of their own.
cmake_targets = $(if $(filter release,$(PRESET))$(filter command,$(origin TARGETS)),-DQUERN_TARGETS="$(subst $(eval) ,;,$(TARGETS))" \
  -DQUERN_SIM_EXEC=$(if $(filter all,$(TARGETS)),all,native))

.PHONY: all product help setup test-setup configure test demo install uninstall bench clock-report release site format lint clean asan tsan fuzz

all: product
	@echo "built $(BUILD)/libquern.so and $(BUILD)/quern, with kernels for $$(cat $(BUILD)/targets.txt) (make TARGETS=all: every GPU)"
	@echo "next: $(BUILD)/quern check, make demo, make install"

product: configure
	@cmake --build $(BUILD) -j $(JOBS) --target product

help:
	@echo "make            build the libraries, device images and command into $(BUILD)"
	@echo "make demo       a real model in FP8 tells which sentences are alike, on the CPU and a simulated MI300X"
	@echo "                (MODEL=DIR quantises any local checkpoint and runs layers of it)"
	@echo "make test       build and run every test"
	@echo "make install    install under PREFIX (default /usr/local); make uninstall removes it"
	@echo "make bench      the ops beside the machine's limits; the simulator's own speed"
	@echo "make clock-report  the simulator's clock beside published times, into docs/clock_report.md (AITER=CLONE: of ROCm/aiter)"
	@echo "make release    a wheel, tarball, .deb and .rpm of the commit, with sums, into build/releases"
	@echo "make site       docs/, the API and all kernels as pages, into build/site"
	@echo "make asan tsan  the tests under sanitizers;  make fuzz: each fuzzer for a minute"
	@echo "make format     clang-format;  make lint: layers, formatting"
	@echo "make TARGETS=all   for every GPU and CPU, not only this machine's and the demo's;"
	@echo "                   TARGETS='gfx942 gfx1151' for these;  make clean"

setup:
	@tools/setup.sh --build

test-setup:
	@tools/setup.sh

configure: setup
	@cmake --preset $(PRESET) -B $(BUILD) $(cmake_targets) > $(BUILD).configure.log 2>&1 || \
	  { cat $(BUILD).configure.log; exit 1; }

test: TARGETS := all
test: test-setup configure
	@cmake --build $(BUILD) -j $(JOBS)
	@ctest --test-dir $(BUILD) --output-on-failure -j 2

asan:
	@$(MAKE) --no-print-directory test PRESET=asan BUILD=build/asan

tsan:
	@$(MAKE) --no-print-directory test PRESET=tsan BUILD=build/tsan

fuzz: setup
	@tools/fuzz.sh

demo: product
	@tools/demo.sh "$(BUILD)" "$(MODEL)"

bench: product
	@$(BUILD)/quern bench
	@cmake --build $(BUILD) --target sim_bench --target sim_gemm --target sim_load
	@$(BUILD)/sim_bench
	@$(BUILD)/sim_gemm
	@$(BUILD)/sim_load $(BUILD)/libquernsim.so $(BUILD)/straight.gfx942.co

clock-report: configure
	@[ -n "$(AITER)" ] || { echo "make clock-report AITER=CLONE: CLONE is a clone of https://github.com/ROCm/aiter"; exit 1; }
	@cmake --build $(BUILD) -j $(JOBS) --target quernsim
	@python3 sim/clock/calibration/calibrate.py --aiter "$(AITER)" --library $(BUILD)/libquernsim.so.0 \
	  --times $(BUILD)/clock_times.csv --report docs/clock_report.md

install: product
	@DESTDIR="$(DESTDIR)" cmake --install "$(BUILD)" --prefix "$(PREFIX)"
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig # so that programs find it in /usr/local/lib at once

uninstall:
	@tools/uninstall.sh $(BUILD) "$(DESTDIR)"

release: TARGETS := $(if $(filter command,$(origin TARGETS)),$(TARGETS),all)
release:
	@tools/setup.sh --release
	@release/release.sh build/dist build/releases "$(subst $(eval) ,;,$(TARGETS))"

site: product
	@tools/setup.sh --site
	@build/site-tools/bin/python site/build.py --build $(BUILD) --output build/site
	@echo "built build/site/index.html"

format: setup
	@git ls-files '*.c' '*.h' | xargs $$(command -v clang-format-22 || command -v clang-format) -i

lint: setup
	@tools/lint.sh

clean:
	@rm -rf build/release build/asan build/tsan build/fuzz build/site build/site.source
