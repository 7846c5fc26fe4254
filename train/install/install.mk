# Installing and packing. Included by the Makefile.

# What install wrote and made is noted in PREFIX/share/minnow/manifest, by which uninstall goes.
install: all ## the command, the library, headers, minnow.pc, man page, completion: PREFIX=/usr/local DESTDIR=
	$(Q)BUILD="$(BUILD)" CC="$(CC)" VERSION="$(VERSION)" SHARED="$(SHARED)" SONAME="$(SONAME)" LIBS="$(strip $(HARDEN) -fopenmp $(LDLIBS))" \
	  PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" train/install/install.sh
uninstall: ## remove what install wrote, with the same PREFIX and DESTDIR
	$(Q)PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" train/install/uninstall.sh
wheel: all $(BUILD)/wheel/libminnow.so ## build/minnow-….whl and, for PyTorch 2.4 or newer, minnow_torch-….whl, to pip install (PYTHON=python3 makes them)
	$(Q)BUILD="$(BUILD)" VERSION="$(VERSION)" PYTHON="$(PYTHON)" train/install/wheel.sh
# What minnow_torch calls, and no more. OpenMP and cuBLASLt are those of the PyTorch that loads it.
$(BUILD)/wheel/libminnow.so: $(BUILD)/libminnow.a
	$(call say,LD,$@)mkdir -p $(@D) && $(CC) $(filter-out -fopenmp,$(LDFLAGS)) -shared -Wl,--exclude-libs,libcudart_static.a -o $@ \
	  -Wl,-u,mn_block_forward,-u,mn_device_open $< $(CUDA_LIBS) -lm
dist: ## build/minnow-VERSION.tar.gz: the sources
	$(Q)BUILD="$(BUILD)" VERSION="$(VERSION)" train/install/dist.sh
# The man page is in git, because help2man is not on every machine; tests/test_man.sh tells when it has to be made again.
man: PROGRAMS += help2man
man: packages $(BUILD)/minnow ### train/install/minnow.1 from the program's help, by help2man
	$(Q)MINNOW=$(BUILD)/minnow help2man --no-info --name "minimal neural-net engine that trains" --output train/install/minnow.1 \
	  train/install/man.sh

.PHONY: install uninstall wheel dist man
