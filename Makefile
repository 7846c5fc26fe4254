# minnow: a minimal neural-net engine that trains. `make help` lists the goals; everything is built into build/.
#
#   CUDA=0          build for the CPU alone (the default where there is no nvcc)
#   CUDA_ARCH="90"  GPU architectures (default: the GPU that is here, else 75 80 90, and PTX for later ones)
#   SANITIZE=address,undefined   DEBUG=1   WERROR=1   VERBOSE=1

CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(firstword $(wildcard $(shell command -v nvcc 2>/dev/null) /usr/local/cuda/bin/nvcc)))
NVCC      ?= $(CUDA_HOME)/bin/nvcc
CUDA      ?= $(if $(wildcard $(NVCC)),1,0)
SANITIZE  ?=
DEBUG     ?= 0
WERROR    ?= 0
VERBOSE   ?= 0
CC        := $(if $(filter default,$(origin CC)),gcc,$(CC))

BUILD   ?= build
PREFIX  ?= /usr/local
PYTHON  ?= python3
DESTDIR ?=
VERSION := 0.3.0
# The shared library's name and its soname, which changes when a program has to be linked anew: with the first number of VERSION.
SHARED  := libminnow.so.$(VERSION)
SONAME  := libminnow.so.$(firstword $(subst ., ,$(VERSION)))
Q       := $(if $(filter 1,$(VERBOSE)),,@)
say      = $(if $(filter 1,$(VERBOSE)),,@echo "  $(1)	$(patsubst $(BUILD)/%,%,$(2))";)

# train/install/packages.sh compiles and links a line against each library with these same flags.
HDF5_CFLAGS := $(shell pkg-config --cflags hdf5-serial 2>/dev/null || pkg-config --cflags hdf5 2>/dev/null)
HDF5_LIBS   := $(shell pkg-config --libs hdf5-serial 2>/dev/null || pkg-config --libs hdf5 2>/dev/null || echo -lhdf5)
BLAS_CFLAGS := $(shell pkg-config --cflags openblas 2>/dev/null)
BLAS_LIBS   := $(shell pkg-config --libs openblas 2>/dev/null || echo -lopenblas)
JSON_CFLAGS := $(shell pkg-config --cflags jansson 2>/dev/null)
JSON_LIBS   := $(shell pkg-config --libs jansson 2>/dev/null || echo -ljansson)
ZLIB_LIBS   := $(shell pkg-config --libs zlib 2>/dev/null || echo -lz)
HASH_LIBS   := $(shell pkg-config --libs libxxhash 2>/dev/null || echo -lxxhash)
CMOCKA_LIBS := -lcmocka

# clang warns of each `omp simd` that it does not follow; that is slower and nothing else.
OPTIMIZE := $(if $(filter 1,$(DEBUG)),-O0 -g3,-O3 -g)
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(if $(findstring clang,$(CC)),-Wno-pass-failed) \
            $(if $(filter 1,$(WERROR)),-Werror)
HARDEN   := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all)
override CFLAGS += -std=c11 -D_GNU_SOURCE -DMN_VERSION='"$(VERSION)"' -I. $(OPTIMIZE) $(WARN) $(HARDEN) -fPIC -fvisibility=hidden -fopenmp -ffp-contract=off -fno-math-errno \
            -fno-trapping-math $(HDF5_CFLAGS) $(BLAS_CFLAGS) $(JSON_CFLAGS) $(if $(filter 1,$(CUDA)),-DMN_CUDA)
override LDLIBS += $(HDF5_LIBS) $(BLAS_LIBS) $(JSON_LIBS) $(ZLIB_LIBS) $(HASH_LIBS) -lpthread -lm
override LDFLAGS += $(HARDEN) -fopenmp

comma := ,
ifeq ($(CUDA),1)
HERE      := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -n 's/^\([0-9]*\)\.\([0-9]*\)$$/\1\2/p' | sort -u)
CUDA_ARCH ?= $(or $(HERE),75 80 90 ptx)
ARCHS     := $(filter-out ptx,$(CUDA_ARCH))
PTX       := $(if $(filter ptx,$(CUDA_ARCH)),$(lastword $(ARCHS)))
GENCODE   := $(foreach a,$(ARCHS),-gencode=arch=compute_$(a),code=sm_$(a)) \
             $(foreach a,$(PTX),-gencode=arch=compute_$(a),code=compute_$(a))
override NVFLAGS += -std=c++17 -O3 -lineinfo -I. -ccbin g++ -DMN_CUDA -Xcompiler -fPIC,-fvisibility=hidden,-Wall \
             $(if $(filter 1,$(WERROR)),-Werror all-warnings)
override LDLIBS += -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcudart_static -lstdc++ -ldl -lrt
endif

# The CPU kernels that are compiled twice, for float and for double.
TWICE   := kernels/block.c kernels/elementwise.c kernels/gemm.c kernels/loss.c kernels/random.c kernels/update.c
ROOMS   := kernels engine layers data train
MAIN    := train/command/main.c
ONCE    := $(filter-out $(TWICE) $(MAIN) train/install/%,$(shell find $(ROOMS) -name '*.c' | LC_ALL=C sort))
OBJECTS := $(TWICE:%.c=$(BUILD)/%.fp32.o) $(TWICE:%.c=$(BUILD)/%.fp64.o) $(ONCE:%.c=$(BUILD)/%.o) \
           $(if $(filter 1,$(CUDA)),$(patsubst %.cu,$(BUILD)/%.cu.o,$(shell find $(ROOMS) -name '*.cu' | LC_ALL=C sort)))
TESTS   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
SCRIPTS := $(wildcard tests/test_*.sh)

# Changed flags compile everything again: every object depends on build/flags.*, which are rewritten only when the flags change.
define note_flags
$(shell mkdir -p $(BUILD))$(file >$(BUILD)/flags.$(1).new,$(2))
$(shell cmp -s $(BUILD)/flags.$(1).new $(BUILD)/flags.$(1) || cp $(BUILD)/flags.$(1).new $(BUILD)/flags.$(1); rm -f $(BUILD)/flags.$(1).new)
endef
ifneq ($(filter-out packages lint format clean help test demo nightly uninstall dist,$(or $(MAKECMDGOALS),all)),)
$(call note_flags,cc,$(CC) $(CFLAGS))
$(call note_flags,nvcc,$(NVCC) $(NVFLAGS) $(GENCODE))
endif

all: $(BUILD)/libminnow.a $(BUILD)/$(SHARED) $(BUILD)/minnow

$(BUILD)/minnow: $(BUILD)/$(MAIN:.c=.o) $(BUILD)/libminnow.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/libminnow.a: $(OBJECTS)
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $^
$(BUILD)/$(SHARED): $(OBJECTS)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,--exclude-libs,ALL -o $@ $^ $(LDLIBS)
	$(Q)ln -sf $(SHARED) $(BUILD)/$(SONAME) && ln -sf $(SONAME) $(BUILD)/libminnow.so

# Once for each set of flags, and before anything is compiled: a library that is missing is named in one line.
PACKAGES = HDF5_LIBS="$(HDF5_LIBS)" BLAS_LIBS="$(BLAS_LIBS)" JSON_LIBS="$(JSON_LIBS)" ZLIB_LIBS="$(ZLIB_LIBS)" HASH_LIBS="$(HASH_LIBS)" CMOCKA_LIBS="$(CMOCKA_LIBS)" train/install/packages.sh
$(BUILD)/found: $(BUILD)/flags.cc
	$(Q)$(PACKAGES) --build -- $(CC) $(CFLAGS) $(LDFLAGS) && touch $@

$(BUILD)/%.fp32.o: %.c $(BUILD)/flags.cc | $(BUILD)/found
	$(call say,CC,$@)mkdir -p $(@D) && $(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/%.fp64.o: %.c $(BUILD)/flags.cc | $(BUILD)/found
	$(call say,CC,$@)mkdir -p $(@D) && $(CC) $(CFLAGS) -DMN_DOUBLE -MMD -MP -c -o $@ $<
$(BUILD)/%.o: %.c $(BUILD)/flags.cc | $(BUILD)/found
	$(call say,CC,$@)mkdir -p $(@D) && $(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
DRAWING := $(patsubst %.gp,$(BUILD)/%.o,$(wildcard train/command/*.gp))
$(DRAWING): $(BUILD)/%.o: %.gp
# kernels/hopper needs the instructions of sm_90a (wgmma, TMA), which no other GPU can run.
$(BUILD)/%.cu.o: GENCODE_OF = $(if $(filter kernels/hopper/%,$*),-gencode=arch=compute_90a$(comma)code=sm_90a,$(GENCODE))
$(BUILD)/%.cu.o: %.cu $(BUILD)/flags.nvcc | $(BUILD)/found
	$(call say,NVCC,$@)mkdir -p $(@D) && $(NVCC) $(NVFLAGS) $(GENCODE_OF) -MMD -MP -c -o $@ $<

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/libminnow.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(CMOCKA_LIBS) $(LDLIBS)

# The README's two commands. Packages first; then make starts anew, since pkg-config may answer otherwise now. It builds on all
# cores, unless -j was given; check runs the tests one after the other in any case.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
test: PROGRAMS += g++
test: packages
	$(Q)$(MAKE) --no-print-directory $(JOBS) check
demo: packages
	$(Q)$(MAKE) --no-print-directory $(JOBS) demo-run
packages:
	$(Q)$(PACKAGES) $(PROGRAMS) -- $(CC) $(CFLAGS) $(LDFLAGS)

# What install wrote and made is noted in PREFIX/share/minnow/manifest, by which uninstall goes.
install: all
	$(Q)BUILD="$(BUILD)" CC="$(CC)" VERSION="$(VERSION)" SHARED="$(SHARED)" SONAME="$(SONAME)" LIBS="$(strip $(HARDEN) -fopenmp $(LDLIBS))" \
	  PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" train/install/install.sh
uninstall:
	$(Q)PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" train/install/uninstall.sh
dist:
	$(Q)BUILD="$(BUILD)" VERSION="$(VERSION)" train/install/dist.sh
# minnow for PyTorch: layers/minnow_torch.py and the shared library.
wheel: $(BUILD)/$(SHARED)
	$(Q)BUILD="$(BUILD)" VERSION="$(VERSION)" SHARED="$(SHARED)" PYTHON="$(PYTHON)" train/install/wheel.sh
# The man page is in git, because help2man is not on every machine; tests/test_man.sh tells when it has to be made again.
man: PROGRAMS += help2man
man: packages $(BUILD)/minnow
	$(Q)MINNOW=$(BUILD)/minnow help2man --no-info --name "minimal neural-net engine that trains" --output train/install/minnow.1 \
	  train/install/man.sh

# Every test program and script, one after the other, run from this folder so that tests/golden and data/ are found.
check: all $(TESTS) $(BUILD)/tests/ranks/train
	$(Q)set -e; export OMP_WAIT_POLICY=passive; for t in $(TESTS) $(SCRIPTS); do echo "== $$(basename $$t)"; \
	  MINNOW=$(BUILD)/minnow BUILD=$(BUILD) CC="$(CC)" CFLAGS="$(HARDEN)" LDLIBS="$(LDFLAGS) $(LDLIBS)" $$t; done

# Every suite whole; it goes on where it stopped. SUITES="lint kills" names some.
nightly:
	$(Q)BUILD="$(BUILD)" SUITES="$(SUITES)" tests/nightly.sh

test-mutants:
	$(Q)tests/mutants.sh

# The tests in which threads of ours work side by side, under ThreadSanitizer; the first report of a race ends them. OpenMP and
# OpenBLAS have one thread each, because libgomp is not built for ThreadSanitizer, which would report its barriers. The program
# must take the addresses that ThreadSanitizer leaves it: setarch -R keeps a kernel that randomises many bits from others. 99 is
# no exit code of minnow's, which a test might expect.
RACING := test_hdf5 test_rows test_loader test_reading test_saver test_pauses test_library test_trainer test_training test_link
test-threads: RUN = $(shell setarch -R true 2>/dev/null && echo setarch -R)
test-threads:
	$(Q)$(MAKE) --no-print-directory CUDA=0 SANITIZE=thread WERROR=0 BUILD=$(BUILD)/threads all $(RACING:%=$(BUILD)/threads/tests/%)
	$(Q)set -e; export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TSAN_OPTIONS=halt_on_error=1:exitcode=99; \
	  for t in $(RACING); do echo "== $$t, ThreadSanitizer"; MINNOW=$(BUILD)/threads/minnow $(RUN) $(BUILD)/threads/tests/$$t; done

# Small files damaged in every place, under AddressSanitizer and UndefinedBehaviorSanitizer: read in one process, then a sample of
# them by every command, RUNS of each. All of it takes hours; ARGS="--sample 200 --seed 1" reads so many variants of each file.
TORN := $(BUILD)/torn
RUNS ?= 20
TORN_PARTS := files reading sanitizers
test-torn:
	$(Q)$(MAKE) --no-print-directory CUDA=0 SANITIZE=address,undefined WERROR=0 BUILD=$(TORN) $(TORN)/minnow $(TORN)/tests/torn/torn
	$(Q)$(TORN)/tests/torn/torn --jobs $(shell nproc) $(ARGS)
	$(Q)rm -rf $(TORN)/files && mkdir $(TORN)/files && $(TORN)/tests/torn/torn --write $(TORN)/files --sample $(RUNS)
	$(Q)MINNOW=$(TORN)/minnow $(PYTHON) tests/torn/commands.py $(TORN)/files --runs $(RUNS)
$(BUILD)/tests/torn/torn: $(TORN_PARTS:%=$(BUILD)/tests/torn/%.o)

# libFuzzer on each reader of files and texts; FUZZ="checkpoint dataset" names some, SECONDS=3600 is how long each runs, by
# WORKERS=2 processes. What they find and learn stays in build/fuzz, for the next run.
FUZZERS := checkpoint dataset cases log options
FUZZ    ?= $(FUZZERS)
SECONDS ?= 60
WORKERS ?= 1
FUZZED  := $(BUILD)/fuzz
INSTRUMENTED = CC=clang CUDA=0 SANITIZE=fuzzer-no-link,address,undefined WERROR=0 BUILD=$(FUZZED)
fuzz:
	$(Q)$(MAKE) --no-print-directory $(INSTRUMENTED) packages
	$(Q)$(MAKE) --no-print-directory $(INSTRUMENTED) $(FUZZED)/tests/fuzz/seeds $(FUZZERS:%=$(FUZZED)/tests/fuzz/fuzz_%)
	$(Q)BUILD=$(FUZZED) SECONDS_EACH=$(SECONDS) WORKERS=$(WORKERS) tests/fuzz/fuzz.sh $(FUZZ)
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/input.o $(BUILD)/tests/torn/sanitizers.o $(BUILD)/libminnow.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)
$(BUILD)/tests/fuzz/seeds: $(BUILD)/tests/fuzz/seeds.o $(BUILD)/tests/torn/files.o $(BUILD)/libminnow.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -Wl,--wrap=H5Pset_libver_bounds -o $@ $^ $(CMOCKA_LIBS) $(LDLIBS)

# COUNT=1000 draws of tensors of every kind for layers/minnow_torch.py, under AddressSanitizer and UndefinedBehaviorSanitizer.
# Python has to load ASan first, and beside it the C++ library whose exceptions ASan looks up then.
TORCH := $(BUILD)/torch
test-torch:
	$(Q)$(MAKE) --no-print-directory CC=gcc CUDA=0 SANITIZE=address,undefined WERROR=0 BUILD=$(TORCH) $(TORCH)/$(SHARED)
	$(Q)BUILD=$(TORCH) COUNT=$(or $(COUNT),1000) PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	  tests/test_torch.sh Tensors

# Every command under valgrind's memcheck.
test-valgrind: PROGRAMS += valgrind
test-valgrind: packages $(BUILD)/minnow
	$(Q)MINNOW=$(BUILD)/minnow tests/valgrind.sh
# COUNT=100 runs of the demo, and small ones in each precision, one result each. ARGS="--device auto": on the GPU that is here.
test-determinism: $(BUILD)/minnow
	$(Q)MINNOW=$(BUILD)/minnow CC="$(CC)" COUNT=$(or $(COUNT),100) tests/determinism.sh $(ARGS)
# The share of lines that the C tests run.
COVERED := $(BUILD)/coverage
coverage:
	$(Q)$(MAKE) --no-print-directory CC=gcc CUDA=0 DEBUG=1 CFLAGS="--coverage -fprofile-update=atomic" LDFLAGS=--coverage BUILD=$(COVERED) \
	  all $(COVERED)/tests/ranks/train $(TESTS:$(BUILD)/%=$(COVERED)/%)
	$(Q)BUILD=$(COVERED) tests/coverage.sh
# Every call of a training run fails in turn, and nothing is lost; a run is killed again and again, and ends in the same bytes.
# People's actions with the files of runs, at random and with kills, touch no file of another run. ARGS="--help" lists the options.
calls = $(shell nm -u $(1) 2>/dev/null | sed -n 's/^ *U \($(2)[A-Z][A-Za-z0-9_]*\)$$/\1/p' | sort -u | grep -vE '$(3)')
test-faults test-kills test-actions: $(BUILD)/minnow $(BUILD)/tests/faults/inject.so $(if $(findstring cuda,$(ARGS)),$(BUILD)/tests/faults/minnow)
	$(Q)BUILD=$(BUILD) PYTHONDONTWRITEBYTECODE=1 python3 tests/faults/$(@:test-%=%).py $(ARGS)
$(BUILD)/tests/faults/inject.so: HDF5_CALLS = $(call calls,$(BUILD)/libminnow.a,H5,H5E|H5open|H5close|H5free|H5get|_g$$)
$(BUILD)/tests/faults/inject.so: tests/faults/inject.c $(BUILD)/libminnow.a $(BUILD)/flags.cc
	$(call say,CC,$@)mkdir -p $(@D) && $(CC) -std=c11 -D_GNU_SOURCE '-DH5_FUNCTIONS=$(patsubst %,H5(%),$(HDF5_CALLS))' $(OPTIMIZE) $(WARN) -fPIC -shared -MMD -MP -o $@ $< -ldl
# A minnow whose calls of CUDA's runtime and of cuBLASLt can be let fail.
$(BUILD)/tests/faults/minnow: DEVICE_CALLS = $(call calls,$(BUILD)/libminnow.a,cu[a-z]*,Destroy|Free|Error|Status|ersion)
$(BUILD)/tests/faults/minnow: tests/faults/device.c $(BUILD)/$(MAIN:.c=.o) $(BUILD)/libminnow.a
	$(call say,LD,$@)mkdir -p $(@D) && $(CC) $(CFLAGS) '-DDEVICE_FUNCTIONS=$(patsubst %,DEVICE(%),$(DEVICE_CALLS))' $(LDFLAGS) $(DEVICE_CALLS:%=-Wl,--wrap=%) -Wl,--wrap=dlsym -o $@ $^ $(LDLIBS)

# Steps and jobs of a Slurm that the test gets and starts, as root.
test-slurm: $(BUILD)/minnow
	$(Q)MINNOW=$(BUILD)/minnow tests/slurm.sh

# The CUDA tests under each of compute-sanitizer's tools; needs a GPU.
test-sanitizer: all $(TESTS) $(BUILD)/tests/initcheck
	$(Q)MINNOW=$(BUILD)/minnow BUILD=$(BUILD) tests/sanitizer.sh

# Times minnow, PyTorch and JAX; one that python3 does not have is left out and named. ARGS="--help" lists the options;
# ARGS="--train" times their training loops, ARGS="--ranks 4" minnow on four GPUs beside DDP and FSDP; each of the two
# has options of its own, which --help after it lists.
peers: $(BUILD)/tests/minnow_peer.so $(BUILD)/minnow $(BUILD)/$(SHARED)
	$(Q)BUILD=$(BUILD) PYTHONDONTWRITEBYTECODE=1 python3 tests/peers/peers.py $(ARGS)
$(BUILD)/tests/minnow_peer.so: $(BUILD)/tests/peers/minnow_peer.o $(BUILD)/libminnow.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -shared -o $@ $^ $(LDLIBS)

DEMO := $(BUILD)/demo
demo-run: $(BUILD)/minnow
	$(Q)rm -rf $(DEMO) && mkdir -p $(DEMO)
	$(Q)$(BUILD)/minnow train --data data/digits.h5 --hidden 128 --groups 8 --epochs 20 --batch 64 --lr 0.05 --momentum 0.9 \
	  --checkpoint $(DEMO)/digits.h5 --log $(DEMO)/digits.jsonl --plot $(DEMO)/digits.svg
	$(Q)echo "checkpoint $(DEMO)/digits.h5, log $(DEMO)/digits.jsonl, picture $(DEMO)/digits.svg"

lint:
	$(Q)tests/lint.sh
format:
	$(Q)clang-format -i $$(git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh')

clean:
	$(Q)rm -rf $(BUILD)

help:
	@echo "make               build/minnow, build/libminnow.a, build/libminnow.so"
	@echo "make demo          train on data/digits.h5, draw the curves, print the test accuracy"
	@echo "make test          every test (first installs packages that are missing)"
	@echo "make check         the same without looking for packages"
	@echo "make nightly       every suite whole, hours; goes on where it stopped (SUITES=\"lint kills\": these)"
	@echo "make install       the command, the library, headers, minnow.pc, man page, completion: PREFIX=/usr/local DESTDIR="
	@echo "make uninstall     remove what install wrote, with the same PREFIX and DESTDIR"
	@echo "make dist          build/minnow-$(VERSION).tar.gz: the sources"
	@echo "make wheel         build/minnow_torch-….whl, for PyTorch 2.4 or newer: pip install it (PYTHON=python3 makes it)"
	@echo "make packages      install the packages that are missing (Debian, Ubuntu)"
	@echo "make test-mutants  break the code in many ways and see the tests fail"
	@echo "make test-threads  what threads share, under ThreadSanitizer"
	@echo "make test-torn     files damaged in every place are refused, never a crash (ARGS=\"--sample 200\": a sample)"
	@echo "make fuzz          libFuzzer on what reads files and texts (FUZZ=\"checkpoint log\" SECONDS=60 WORKERS=1)"
	@echo "make test-torch    minnow_torch given tensors of every kind, under AddressSanitizer (COUNT=1000, PYTHON=… that has PyTorch)"
	@echo "make test-valgrind  every command under memcheck"
	@echo "make test-determinism  100 runs, one result (COUNT=100, ARGS=\"--device auto\")"
	@echo "make coverage      the share of lines that the C tests run, by folder"
	@echo "make test-faults   every call of a training run fails in turn (ARGS=\"--help\" lists the options)"
	@echo "make test-kills    training runs are killed and resumed (ARGS=\"--help\")"
	@echo "make test-actions  what people do with the files of runs, at random, with kills (ARGS=\"--help\")"
	@echo "make test-slurm    steps and jobs under a Slurm of the test's own (root, apt-get)"
	@echo "make test-sanitizer  the CUDA tests under compute-sanitizer (needs a GPU)"
	@echo "make peers         minnow, PyTorch and JAX timed alike on one GPU (ARGS=\"--help\" lists the options);"
	@echo "                   ARGS=\"--train\": their training loops (ARGS=\"--train --help\")"
	@echo "                   ARGS=\"--ranks 4\": on four GPUs, beside DDP and FSDP (ARGS=\"--ranks 4 --help\")"
	@echo "make man           train/install/minnow.1 from the program's help by help2man"
	@echo "make lint, format, clean"
	@echo "knobs: CUDA=0  CUDA_ARCH=\"90\"  SANITIZE=address,undefined  DEBUG=1  WERROR=1  VERBOSE=1  BUILD=folder"

.PHONY: all install uninstall dist wheel man test demo packages check nightly test-mutants test-threads test-torn test-torch test-faults test-kills test-actions test-slurm fuzz test-valgrind test-determinism \
        coverage test-sanitizer peers demo-run lint format clean help
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
