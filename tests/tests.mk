# Tests and measurements. Included by the Makefile; `make help-tests` lists the goals.

TESTS   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
SCRIPTS := $(wildcard tests/test_*.sh)
# These are begun first, because they take longest.
LONGEST := test_torch test_ranks test_ranks_command test_signals test_command test_training test_install test_wheel test_packages
# pick NAMES,PROGRAMS: the programs of these names, in the names' order.
pick     = $(foreach name,$(1),$(filter %/$(name) %/$(name).sh,$(2)))
ONLY    ?=
UNKNOWN := $(strip $(foreach name,$(ONLY),$(if $(call pick,$(name),$(TESTS) $(SCRIPTS)),,$(name))))
$(if $(UNKNOWN),$(error there is no test $(UNKNOWN): ONLY names programs without folder or ending, as make test prints them))
CHOSEN   = $(if $(ONLY),$(call pick,$(ONLY),$(TESTS) $(SCRIPTS)),$(call first,$(LONGEST),$(TESTS) $(SCRIPTS)))
first    = $(call pick,$(1),$(2)) $(filter-out $(call pick,$(1),$(2)),$(2))
# The programs run in this folder, where tests/golden and data/ are.
RUN      = OMP_WAIT_POLICY=passive MINNOW=$(BUILD)/minnow BUILD=$(BUILD) CC="$(CC)" CFLAGS="$(HARDEN)" LDLIBS="$(LDFLAGS) $(LDLIBS)" tests/run.sh

check: all $(filter $(TESTS),$(CHOSEN)) $(BUILD)/tests/ranks/train ### make test without looking for packages; ONLY="test_resume test_ranks" runs these
	$(Q)$(RUN) $(CHOSEN)
quick: all $(TESTS) ### the C tests, those that failed last first: what a change of one file can break
	$(Q)$(RUN) $(call first,$(shell cat $(BUILD)/tests/failed 2>/dev/null) $(LONGEST),$(TESTS))
nightly: ### all of the suites below, in at most 30 minutes (MINUTES=30); SUITES="lint kills" names some
	$(Q)BUILD="$(BUILD)" SUITES="$(SUITES)" MINUTES="$(or $(MINUTES),30)" tests/nightly.sh

# The first report of a race ends a program, with 99, which is no exit code of minnow's. OpenMP has one thread,
# because libgomp is not built for ThreadSanitizer, which would report its barriers. A kernel that randomises many bits of addresses
# may take those that ThreadSanitizer needs: setarch -R keeps it from that.
RACING  := test_predictor test_hdf5 test_rows test_loader test_reading test_saver test_pauses test_library test_trainer
THREADS := $(BUILD)/threads
test-threads: ### the tests whose threads work side by side, under ThreadSanitizer
	$(Q)$(MAKE) --no-print-directory CUDA=0 SANITIZE=thread WERROR=0 BUILD=$(THREADS) all $(RACING:%=$(THREADS)/tests/%)
	$(Q)OMP_NUM_THREADS=1 TSAN_OPTIONS=halt_on_error=1:exitcode=99:atexit_sleep_ms=0 BUILD=$(THREADS) \
	  MINNOW=$(THREADS)/minnow $(shell setarch -R true 2>/dev/null && echo setarch -R) tests/run.sh $(RACING:%=$(THREADS)/tests/%)

# Read in one process, then RUNS of each kind by every command. All of them take hours.
TORN := $(BUILD)/torn
RUNS ?= 20
TORN_PARTS := files reading sanitizers
test-torn: ### files damaged in every place are refused, under ASan and UBSan (ARGS="--sample 200 --seed 1": 200 variants of each file)
	$(Q)$(MAKE) --no-print-directory CUDA=0 SANITIZE=address,undefined WERROR=0 BUILD=$(TORN) $(TORN)/minnow $(TORN)/tests/torn/torn
	$(Q)$(TORN)/tests/torn/torn --jobs $(shell nproc) $(ARGS)
	$(Q)rm -rf $(TORN)/files && mkdir $(TORN)/files && $(TORN)/tests/torn/torn --write $(TORN)/files --sample $(RUNS)
	$(Q)MINNOW=$(TORN)/minnow $(PYTHON) tests/torn/commands.py $(TORN)/files --runs $(RUNS)
$(BUILD)/tests/torn/torn: $(TORN_PARTS:%=$(BUILD)/tests/torn/%.o)

# What libFuzzer finds and learns stays in build/fuzz, for the next run.
FUZZERS := checkpoint dataset csv cases log options
FUZZ    ?= $(FUZZERS)
SECONDS ?= 60
WORKERS ?= 1
FUZZED  := $(BUILD)/fuzz
INSTRUMENTED = CC=clang CUDA=0 SANITIZE=fuzzer-no-link,address,undefined WERROR=0 BUILD=$(FUZZED)
fuzz: ### libFuzzer on each reader of files and texts (FUZZ="checkpoint log": these; SECONDS=60 each, WORKERS=1)
	$(Q)$(MAKE) --no-print-directory $(INSTRUMENTED) packages
	$(Q)$(MAKE) --no-print-directory $(INSTRUMENTED) $(FUZZED)/tests/fuzz/seeds $(FUZZERS:%=$(FUZZED)/tests/fuzz/fuzz_%)
	$(Q)BUILD=$(FUZZED) SECONDS_EACH=$(SECONDS) WORKERS=$(WORKERS) tests/fuzz/fuzz.sh $(FUZZ)
# What only make nightly runs, and the machines with a GPU: .ci/run compiles it. input.o is named too: else make would take the fuzzers'
# objects for what is there, and input.o not, and link the fuzzers by the general rule.
compiled: $(FUZZERS:%=$(BUILD)/tests/fuzz/fuzz_%.o) $(BUILD)/tests/fuzz/input.o $(BUILD)/tests/fuzz/seeds.o $(TORN_PARTS:%=$(BUILD)/tests/torn/%.o) \
          $(BUILD)/tests/apart.o $(BUILD)/tests/initcheck.o $(BUILD)/tests/peers/minnow_peer.o $(BUILD)/tests/peers/predicting.o
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/input.o $(BUILD)/tests/torn/sanitizers.o $(BUILD)/libminnow.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)
$(BUILD)/tests/fuzz/seeds: $(BUILD)/tests/fuzz/seeds.o $(BUILD)/tests/torn/files.o $(BUILD)/libminnow.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -Wl,--wrap=H5Pset_libver_bounds -o $@ $^ $(CMOCKA_LIBS) $(LDLIBS)

# Python has to load ASan first, and beside it the C++ library whose exceptions ASan looks up then.
TORCH := $(BUILD)/torch
test-torch: ### minnow_torch is given COUNT=1000 draws of tensors of every kind, under ASan (PYTHON=… that has PyTorch)
	$(Q)$(MAKE) --no-print-directory CC=gcc CUDA=0 SANITIZE=address,undefined WERROR=0 BUILD=$(TORCH) $(TORCH)/$(SHARED)
	$(Q)BUILD=$(TORCH) COUNT=$(or $(COUNT),1000) PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	  tests/test_torch.sh Tensors

# Every undefined name of a library that begins like the second argument and has none of the third's words.
calls = $(shell nm -u $(1) 2>/dev/null | sed -n 's/^ *U \($(2)[A-Z][A-Za-z0-9_]*\)$$/\1/p' | sort -u | grep -vE '$(3)')
test-faults: ### every call of a training run fails in turn, and nothing is lost (ARGS="--help" lists the options)
test-kills: ### training runs are killed and resumed, and end in the same bytes (ARGS="--help")
test-actions: ### what people do with the folders of runs, at random, with kills: no other file changes (ARGS="--help")
test-resumes: ### random runs, stopped and resumed at random, end in the bytes of the uninterrupted ones (ARGS="--help")
test-faults test-kills test-actions test-resumes: $(BUILD)/minnow $(BUILD)/tests/faults/inject.so $(if $(findstring cuda,$(ARGS)),$(BUILD)/tests/faults/minnow)
	$(Q)BUILD=$(BUILD) PYTHONDONTWRITEBYTECODE=1 python3 tests/faults/$(@:test-%=%).py $(ARGS)
$(BUILD)/tests/faults/inject.so: HDF5_CALLS = $(call calls,$(BUILD)/libminnow.a,H5,H5E|H5open|H5close|H5free|H5get|_g$$)
$(BUILD)/tests/faults/inject.so: tests/faults/inject.c $(BUILD)/libminnow.a $(BUILD)/flags.cc
	$(call say,CC,$@)mkdir -p $(@D) && $(CC) -std=c11 -D_GNU_SOURCE '-DH5_FUNCTIONS=$(patsubst %,H5(%),$(HDF5_CALLS))' $(OPTIMIZE) $(WARN) -fPIC -shared -MMD -MP -o $@ $< -ldl
# A minnow whose calls of CUDA's runtime and of cuBLASLt can be let fail.
$(BUILD)/tests/faults/minnow: DEVICE_CALLS = $(call calls,$(BUILD)/libminnow.a,cu[a-z]*,Destroy|Free|Error|Status|ersion)
$(BUILD)/tests/faults/minnow: tests/faults/device.c $(BUILD)/$(MAIN:.c=.o) $(BUILD)/libminnow.a
	$(call say,LD,$@)mkdir -p $(@D) && $(CC) $(CFLAGS) '-DDEVICE_FUNCTIONS=$(patsubst %,DEVICE(%),$(DEVICE_CALLS))' $(LDFLAGS) $(DEVICE_CALLS:%=-Wl,--wrap=%) -Wl,--wrap=dlsym -o $@ $^ $(LDLIBS)

defaults: $(BUILD)/minnow $(BUILD)/tests/test_defaults ### the defaults of train beside eight other settings, on four kinds of data (ARGS=images: one)
	$(Q)OMP_WAIT_POLICY=passive MINNOW=$(BUILD)/minnow $(BUILD)/tests/test_defaults $(or $(ARGS),all)

threads: $(BUILD)/minnow ### samples a second on the CPU beside busy processes, and PyTorch's (ARGS=5: runs of each; PYTHON=…)
	$(Q)MINNOW=$(BUILD)/minnow $(PYTHON) tests/threads.py $(ARGS)

test-determinism: $(BUILD)/minnow ### COUNT=100 runs of the demo, and small ones in each precision, one result each (ARGS="--device auto")
	$(Q)MINNOW=$(BUILD)/minnow CC="$(CC)" COUNT=$(or $(COUNT),100) tests/determinism.sh $(ARGS)
test-mutants: ### the code is broken in many ways, and the tests fail (COUNT=100, SEED=1; ARGS=layers: there)
	$(Q)tests/mutants.py $(ARGS)
test-valgrind: PROGRAMS += valgrind
test-valgrind: packages $(BUILD)/minnow ### every command under memcheck
	$(Q)MINNOW=$(BUILD)/minnow tests/valgrind.sh
test-strikes: $(BUILD)/minnow ### ranks that are killed, stopped or asked to end at random moments (ARGS="--help")
	$(Q)MINNOW=$(BUILD)/minnow python3 tests/ranks/strikes.py $(ARGS)
test-slurm: $(BUILD)/minnow ### steps and jobs of a Slurm that the test gets and starts (root, apt-get)
	$(Q)MINNOW=$(BUILD)/minnow tests/slurm.sh
test-sanitizer: all $(TESTS) $(BUILD)/tests/initcheck ### the CUDA tests under each of compute-sanitizer's tools (needs a GPU)
	$(Q)MINNOW=$(BUILD)/minnow BUILD=$(BUILD) tests/sanitizer.sh
COVERED := $(BUILD)/coverage
coverage: ### the share of lines that the C tests run, by folder
	$(Q)$(MAKE) --no-print-directory CC=gcc CUDA=0 DEBUG=1 CFLAGS="--coverage -fprofile-update=atomic" LDFLAGS=--coverage BUILD=$(COVERED) \
	  all $(COVERED)/tests/ranks/train $(TESTS:$(BUILD)/%=$(COVERED)/%)
	$(Q)BUILD=$(COVERED) tests/coverage.sh

# A peer that python3 does not have is left out and named.
peers: $(BUILD)/tests/minnow_peer.so $(BUILD)/minnow $(BUILD)/$(SHARED) ### minnow, PyTorch and JAX timed alike on one GPU (ARGS="--help"; "--train": their training loops; "--torch": minnow_torch; "--ranks 4": four GPUs)
	$(Q)BUILD=$(BUILD) PYTHONDONTWRITEBYTECODE=1 python3 tests/peers/peers.py $(ARGS)
$(BUILD)/tests/minnow_peer.so: $(BUILD)/tests/peers/minnow_peer.o $(BUILD)/libminnow.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -shared -o $@ $^ $(LDLIBS)

# The plain C of the comparison is compiled as its users would.
predicting: $(BUILD)/tests/predicting ### predictions by minnow, plain C and onnxruntime, in microseconds (ARGS="--turns 3"; PYTHON with onnxruntime and onnx)
	$(Q)$(PYTHON) tests/peers/predicting.py $< $(ARGS)
$(BUILD)/tests/peers/predicting.o: override CFLAGS += -O3 -ffast-math
$(BUILD)/tests/predicting: $(BUILD)/tests/peers/predicting.o $(BUILD)/libminnow.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

test-csv: $(BUILD)/tests/csv_show ### CSV files that pandas writes, beside what it reads (ARGS="--count 1000"; PYTHON with pandas)
	$(Q)$(PYTHON) tests/csv_drawn.py $< $(ARGS)
lint: ### includes, format, lengths, shellcheck
	$(Q)tests/lint.sh
# What clangd and other tools ask: the command that each source is compiled by.
compile_commands.json: ### for clangd (.clangd): how each source is compiled
	$(Q)printf '$(foreach f,$(ONCE) $(TWICE) $(MAIN),{"directory": "$(CURDIR)", "file": "$f", "command": "$(CC) $(CFLAGS) -c $f"}\n)$(foreach f,$(if $(filter 1,$(CUDA)),\
	  $(shell find $(ROOMS) -name '*.cu')),{"directory": "$(CURDIR)", "file": "$f", "command": "$(NVCC) $(NVFLAGS) -c $f"}\n)' | sed '1s/^ */[/; 2,$$s/^ */,/; $$s/$$/]/' >$@
format: ### clang-format on every source
	$(Q)clang-format -i $$(git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh')

# The README's program, whose main and whose allocations the test calls.
WRAPPED := main malloc calloc realloc free posix_memalign strdup strndup asprintf
$(BUILD)/tests/test_allocations: $(BUILD)/train/install/example.o
$(BUILD)/tests/test_predictor: override LDFLAGS += -Wl,--wrap=malloc -Wl,--wrap=calloc
$(BUILD)/tests/test_allocations: override LDFLAGS += $(WRAPPED:%=-Wl,--wrap=%)
$(BUILD)/train/install/example.o: override CFLAGS += -I$(BUILD)/tests/include
$(BUILD)/train/install/example.o: $(BUILD)/tests/include/minnow/minnow.h
$(BUILD)/tests/include/minnow/minnow.h: train/minnow.h
	$(Q)mkdir -p $(@D) && cp $< $@

$(BUILD)/tests/test_product%.o: override CFLAGS += $(FUSED)
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/libminnow.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(CMOCKA_LIBS) $(LDLIBS)

.PHONY: check quick nightly test-threads test-torn test-csv compiled fuzz test-torch test-faults test-kills test-actions test-resumes test-determinism test-mutants test-valgrind \
        defaults predicting threads test-strikes test-slurm test-sanitizer coverage peers lint format compile_commands.json
