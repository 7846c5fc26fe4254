# minnow: a minimal neural-net engine that trains. `make help` lists the goals; everything is built into build/.

# One goal is built on all cores. Several are made in their order (make clean all), unless -j is given.
ifeq ($(MAKELEVEL)$(word 2,$(MAKECMDGOALS))$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif

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
VERSION := $(shell sed -n 's/.*define MINNOW_VERSION "\(.*\)"/\1/p' train/minnow.h)
# The shared library's name and its soname, which changes when a program has to be compiled anew (tests/abi.txt): by MINNOW_ABI.
SHARED  := libminnow.so.$(VERSION)
SONAME  := libminnow.so.$(shell sed -n "s/.*define MINNOW_ABI \([0-9]*\).*/\1/p" train/minnow.h)
Q       := $(if $(filter 1,$(VERBOSE)),,@)
say      = $(if $(filter 1,$(VERBOSE)),,@echo "  $(1)	$(patsubst $(BUILD)/%,%,$(2))";)

# train/install/packages.sh compiles and links a line against each library with these same flags.
HDF5_CFLAGS := $(shell pkg-config --cflags hdf5-serial 2>/dev/null || pkg-config --cflags hdf5 2>/dev/null)
HDF5_LIBS   := $(shell pkg-config --libs hdf5-serial 2>/dev/null || pkg-config --libs hdf5 2>/dev/null || echo -lhdf5)
JSON_CFLAGS := $(shell pkg-config --cflags jansson 2>/dev/null)
JSON_LIBS   := $(shell pkg-config --libs jansson 2>/dev/null || echo -ljansson)
HASH_LIBS   := $(shell pkg-config --libs libxxhash 2>/dev/null || echo -lxxhash)
# What reads CSV. A build without it reads HDF5 alone.
CSV_LIBS    := $(if $(shell echo 'int main(void){return csv_init(0,0);}' | $(CC) -include csv.h -xc -o /dev/null - -lcsv 2>/dev/null && echo 1),-lcsv)
CMOCKA_LIBS := -lcmocka

# clang warns of each `omp simd` that it does not follow; the loop is only slower.
OPTIMIZE := $(if $(filter 1,$(DEBUG)),-O0 -g3,-O3 -g)
WARN     := -Wall -Wextra -Wno-unused-parameter -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(if $(findstring clang,$(CC)),-Wno-pass-failed) \
            $(if $(filter 1,$(WERROR)),-Werror)
HARDEN   := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all)
override CFLAGS += -std=c11 -D_GNU_SOURCE -I. $(OPTIMIZE) $(WARN) $(HARDEN) -fPIC -fvisibility=hidden -fopenmp -ffp-contract=off -fno-math-errno \
            -fno-trapping-math $(HDF5_CFLAGS) $(JSON_CFLAGS) $(if $(filter 1,$(CUDA)),-DMN_CUDA) $(if $(CSV_LIBS),-DMN_CSV)
override LDLIBS += $(HDF5_LIBS) $(JSON_LIBS) $(HASH_LIBS) $(CSV_LIBS) -lpthread -ldl -lm
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
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart_static -lstdc++ -ldl -lrt
override LDLIBS += $(CUDA_LIBS) -Wl,-rpath,$(CUDA_HOME)/lib64
# 1: there is no GPU, and the user named neither CUDA nor CUDA_ARCH. The demo is built without CUDA then.
UNASKED   := $(if $(HERE)$(filter-out file,$(origin CUDA) $(origin CUDA_ARCH)),,1)
endif

# The CPU kernels that are compiled twice, for float and for double.
TWICE   := kernels/block.c kernels/elementwise.c kernels/gemm.c kernels/loss.c kernels/product.c kernels/random.c kernels/update.c
ROOMS   := kernels engine layers data train
MAIN    := train/command/main.c
ONCE    := $(filter-out $(TWICE) $(MAIN) train/install/%,$(shell find $(ROOMS) -name '*.c' | LC_ALL=C sort))
OBJECTS := $(TWICE:%.c=$(BUILD)/%.fp32.o) $(TWICE:%.c=$(BUILD)/%.fp64.o) $(ONCE:%.c=$(BUILD)/%.o) \
           $(if $(filter 1,$(CUDA)),$(patsubst %.cu,$(BUILD)/%.cu.o,$(shell find $(ROOMS) -name '*.cu' | LC_ALL=C sort)))

# Changed flags compile everything again: every object depends on build/flags.*, which are rewritten only when the flags change.
define note_flags
$(shell mkdir -p $(BUILD))$(file >$(BUILD)/flags.$(1).new,$(2))
$(shell cmp -s $(BUILD)/flags.$(1).new $(BUILD)/flags.$(1) || cp $(BUILD)/flags.$(1).new $(BUILD)/flags.$(1); rm -f $(BUILD)/flags.$(1).new)
endef
ifneq ($(filter-out packages lint format clean help help-tests test demo nightly uninstall dist,$(or $(MAKECMDGOALS),all)),)
$(call note_flags,cc,$(CC) $(CFLAGS))
$(call note_flags,nvcc,$(NVCC) $(NVFLAGS) $(GENCODE))
endif

all: $(BUILD)/libminnow.a $(BUILD)/$(SHARED) $(BUILD)/minnow ## the command, the libraries, static and shared: plain make

$(BUILD)/minnow: $(BUILD)/$(MAIN:.c=.o) $(BUILD)/libminnow.a
	$(call say,LD,$@)rm -f $@ && $(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
# The demo's link is newer than what it would be made of.
.PHONY: $(shell find $(BUILD)/minnow -type l 2>/dev/null)
$(BUILD)/libminnow.a: $(OBJECTS)
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $^
$(BUILD)/$(SHARED): $(OBJECTS)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,--exclude-libs,ALL -o $@ $^ $(LDLIBS)
	$(Q)ln -sf $(SHARED) $(BUILD)/$(SONAME) && ln -sf $(SONAME) $(BUILD)/libminnow.so

# Once for each set of flags, and before anything is compiled: a library that is missing is named in one line.
PACKAGES = HDF5_LIBS="$(HDF5_LIBS)" JSON_LIBS="$(JSON_LIBS)" HASH_LIBS="$(HASH_LIBS)" CMOCKA_LIBS="$(CMOCKA_LIBS)" train/install/packages.sh
$(BUILD)/found: $(BUILD)/flags.cc
	$(Q)$(PACKAGES) --build -- $(CC) $(CFLAGS) $(LDFLAGS) && touch $@
	$(Q)$(if $(filter 1,$(CUDA)),echo "  CUDA for $(CUDA_ARCH) takes minutes to compile; make CUDA=0 leaves it out and takes seconds")

# A product's sum is made of fused multiply-adds, also under gcc's -O1.
FUSED   := -ffp-contract=fast $(if $(findstring clang,$(CC)),,-fexpensive-optimizations)
$(BUILD)/kernels/product.%.o: override CFLAGS += $(FUSED)
$(BUILD)/%.fp32.o: %.c $(BUILD)/flags.cc | $(BUILD)/found
	$(call say,CC,$@)mkdir -p $(@D) && $(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/%.fp64.o: %.c $(BUILD)/flags.cc | $(BUILD)/found
	$(call say,CC,$@)mkdir -p $(@D) && $(CC) $(CFLAGS) -DMN_DOUBLE -MMD -MP -c -o $@ $<
$(BUILD)/%.o: %.c $(BUILD)/flags.cc | $(BUILD)/found
	$(call say,CC,$@)mkdir -p $(@D) && $(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
DRAWING := $(patsubst %.gp,$(BUILD)/%.o,$(wildcard train/command/*.gp))
$(DRAWING): $(BUILD)/%.o: %.gp
$(BUILD)/train/command/export.o: train/command/export.h.in train/command/export.py.in
# kernels/hopper needs the instructions of sm_90a (wgmma, TMA), which no other GPU can run.
$(BUILD)/%.cu.o: GENCODE_OF = $(if $(filter kernels/hopper/%,$*),-gencode=arch=compute_90a$(comma)code=sm_90a,$(GENCODE))
$(BUILD)/%.cu.o: %.cu $(BUILD)/flags.nvcc | $(BUILD)/found
	$(call say,NVCC,$@)mkdir -p $(@D) && $(NVCC) $(NVFLAGS) $(GENCODE_OF) -MMD -MP -c -o $@ $<

# The README's two commands. Packages first; then make starts anew, since pkg-config may answer otherwise now.
test: PROGRAMS += g++
test: packages ## every test: three minutes on two cores
	$(Q)$(MAKE) --no-print-directory check
demo: packages ## train on data/digits.h5, draw the curves, print the test accuracy
	$(Q)$(if $(UNASKED),echo "no GPU is here: the demo is built without CUDA in $(BUILD)/cpu")
	$(Q)$(MAKE) --no-print-directory $(if $(UNASKED),CUDA=0 BUILD=$(BUILD)/cpu DEMO=$(DEMO)) demo-run
	$(Q)$(if $(UNASKED),! ln -s cpu/minnow $(BUILD)/minnow 2>/dev/null || echo "$(BUILD)/minnow is a link to $(BUILD)/cpu/minnow until make builds it")
packages: ## install the packages that are missing (Debian, Ubuntu)
	$(Q)$(PACKAGES) $(PROGRAMS) -- $(CC) $(CFLAGS) $(LDFLAGS)

DEMO := $(BUILD)/demo
demo-run: $(BUILD)/minnow
	$(Q)rm -rf $(DEMO)
	$(Q)$(BUILD)/minnow train --data data/digits.h5 --hidden 128 --groups 8 --epochs 20 --batch 64 --optimizer sgd --lr 0.05 --momentum 0.9 --warmup 0 \
	  --run $(DEMO) --plot
	$(Q)echo "run $(DEMO), picture $(DEMO)/plot.svg"

clean: ## remove build/
	$(Q)rm -rf $(BUILD)

include train/install/install.mk tests/tests.mk

# A goal's help is the comment behind it: ## for users, ### for developers.
LIST = sed -n 's/^\([a-z_.-]*\):[^\#]* $(1) \(.*\)/\1 \2/p' $(2) | while read -r goal help; do printf 'make %-17s %s\n' "$$goal" "$$help"; done
help: ## this
	@$(call LIST,\#\#,Makefile train/install/install.mk)
	@echo 'knobs:'
	@echo '  CUDA=0           build for the CPU alone (the default where there is no nvcc)'
	@echo '  CUDA_ARCH="90"   GPU architectures (default: the GPU that is here, else 75 80 90, and PTX for later ones)'
	@echo '  BUILD=folder     where everything is built; CC, CFLAGS, LDFLAGS as usual; VERBOSE=1 shows the commands'
help-tests: ## goals for developers
	@$(call LIST,\#\#\#,tests/tests.mk train/install/install.mk)
	@echo 'knobs: SANITIZE=address,undefined  DEBUG=1  WERROR=1  OPTIMIZE="-O1 -g"'

.PHONY: all test demo demo-run packages clean help help-tests
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
