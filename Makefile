# SPDX-License-Identifier: MulanPSL-2.0
# One Makefile, not recursive. A folder is a link unit: a new file in it is built without a word here.
#
#   make                 everything below O=build
#   make check           what CI runs       make check-quick   the same without sanitizer builds
#   make bench           the programs behind every number we state
#   make soak            the long versions (hours of kill -9, 10^8 events)
#   make install PREFIX=/usr/local
#
# O=dir  CC=clang  SAN=address,undefined | thread  DEBUG=1  WERROR=1

O ?= build
CC = gcc
PREFIX ?= /usr/local
PYTHON ?= python3
VERSION := 0.1.0
MAKEFLAGS += --no-builtin-rules

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings -Wvla \
	-Wpointer-arith -Wformat=2 -Wundef $(if $(WERROR),-Werror)
CPPFLAGS := -Isrc -Iinclude -D_GNU_SOURCE -DSONDE_VERSION='"$(VERSION)"'
CFLAGS := -std=gnu11 $(if $(DEBUG),-O0 -DSONDE_DEBUG,-O2) -g $(WARN)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
# The libraries that go into other people's processes are never sanitised.
GUEST_CFLAGS := $(CFLAGS) -fPIC -fvisibility=hidden -fno-plt -fno-stack-protector
GUEST_LDFLAGS := -shared -Wl,-z,nodelete -Wl,-z,now -Wl,--no-undefined -Wl,-rpath,'$$ORIGIN' -ldl
OWN_CFLAGS := $(CFLAGS) $(SANFLAGS)
# Workbooks are written where there is a library for it; src/export/activity_xlsx.c asks the same.
XLSX_LIBS := $(shell printf '\#include <stddef.h>\n\#include <xlsxwriter.h>\n' | $(CC) -E -x c - >/dev/null 2>&1 && echo -lxlsxwriter)
OWN_LIBS := -levent -levent_openssl -lssl -lcrypto -lsqlite3 -ljansson $(XLSX_LIBS) -lzstd -lz -lxxhash -ldw -lelf -lpthread -ldl -lm

.PHONY: all
all: guest own sim

# --- the guest: libsonde_guest.so is the runtime, the others carry the names that jobs preload ---

GUEST_SRC := $(wildcard src/guest/*.c src/collect/*.c src/stack/native*.c src/stack/python*.c)
GUEST_OBJ := $(GUEST_SRC:%.c=$(O)/guest/%.o)

HOOKS_libleaks_ascend_hal_hook := src/device/ascend/hal_hooks.c
HOOKS_libascend_kernel_hook := $(addprefix src/device/ascend/,kernel_hooks.c stars.c stars_reader.c)
HOOKS_libascend_mstx_hook := src/device/ascend/mstx_hooks.c
HOOKS_libatb_abi_0_hook := $(addprefix src/device/ascend/,atb_hooks.c atb_text.c)
HOOKS_libatb_abi_1_hook := $(HOOKS_libatb_abi_0_hook)
HOOKS_libsonde_host_hook := src/device/host/malloc_hooks.c
# The monitor: what asks the daemon, and the sources of activities.
HOOKS_libsonde_monitor := $(wildcard src/monitor/*.c src/device/*/activity*.c) src/wire/order.c src/wire/fabric.c \
	src/guest/env.c
HOOK_LIBS := $(patsubst HOOKS_%,%,$(filter HOOKS_%,$(.VARIABLES)))
HOOK_SRC := $(sort $(foreach l,$(HOOK_LIBS),$(HOOKS_$(l))))

.PHONY: guest
guest: $(O)/lib/libsonde_guest.so $(HOOK_LIBS:%=$(O)/lib/%.so)

$(O)/guest/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(GUEST_CFLAGS) -MMD -MP -c $< -o $@

# C++ exceptions fly through these hooks.
$(O)/guest/src/device/ascend/atb_hooks.o: GUEST_CFLAGS += -fexceptions
# Has a thread of its own; older C libraries keep threads in a library apart.
$(O)/lib/libascend_kernel_hook.so $(O)/lib/libsonde_guest.so $(O)/lib/libsonde_monitor.so: private GUEST_LDFLAGS += -lpthread

$(O)/lib/libsonde_guest.so: $(GUEST_OBJ)
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(GUEST_LDFLAGS) -Wl,-soname,$(@F)

define hook_lib
$(O)/lib/$(1).so: $(patsubst %.c,$(O)/guest/%.o,$(HOOKS_$(1))) $(O)/lib/libsonde_guest.so
	$(CC) -o $$@ $$(filter %.o,$$^) -L$(O)/lib -lsonde_guest $$(GUEST_LDFLAGS) -Wl,-soname,$$(@F)
endef
$(foreach l,$(HOOK_LIBS),$(eval $(call hook_lib,$(l))))

# --- our own processes: one binary, many names ---

OWN_SRC := $(wildcard src/wire/*.c src/base/*.c src/recorder/*.c src/analyze/*.c src/export/*.c \
	src/daemon/*.c src/cli/*.c src/device/*/modules.c src/device/*/dcmi.c src/device/metrics*.c \
	src/device/*/metrics*.c src/stack/python*.c src/stack/remote*.c src/sampler/*.c)
OWN_OBJ := $(OWN_SRC:%.c=$(O)/own/%.o)

.PHONY: own
own: $(addprefix $(O)/bin/,sonde msmemscope dynolog dyno python_stack_sniffer py_stack_snap) python

$(O)/own/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(OWN_CFLAGS) -MMD -MP -c $< -o $@

# The status page is inside the program.
$(O)/own/src/daemon/page.o: $(wildcard src/web/*)

$(O)/bin/sonde: $(OWN_OBJ)
	@mkdir -p $(@D)
	$(CC) $(OWN_CFLAGS) -o $@ $^ $(OWN_LIBS)

$(O)/bin/msmemscope: src/cli/msmemscope.sh
	@mkdir -p $(@D)
	install -m 755 $< $@

# --- Python: packages, and one extension for every CPython from 3.8 on ---

PYTHON_SRC := $(shell find src/python -name '*.py' -o -name py.typed)
# The headers of any CPython from 3.8 on will do; looked for once, and only by who needs them.
PYTHON_INCLUDE ?= $(eval PYTHON_INCLUDE := $$(shell sh tools/python_include $$(PYTHON)))$(PYTHON_INCLUDE)
NEED_HEADERS = $(if $(PYTHON_INCLUDE),,$(error no Python.h of CPython 3.8 or later: ./bootstrap build \
	installs it (package python3-dev or python3-devel), or give PYTHON_INCLUDE=directory))
# The options of msmemscope are read by the same code as on the command line.
EXTENSION_SRC := $(wildcard src/python/_sonde/*.c) src/recorder/mem_config.c \
	src/recorder/mem_options.c src/recorder/mem_values.c \
	$(addprefix src/base/,args.c args_words.c buf.c err.c fs.c log.c mem.c number.c)
EXTENSION := $(O)/python/sonde/_sonde.abi3.so
# The monitor's: apart, since it brings libsonde_monitor.so along.
MONITOR_EXTENSION := $(O)/python/sonde/_monitor.abi3.so
MONITOR_EXTENSION_SRC := $(wildcard src/python/_monitor/*.c)

.PHONY: python
python: $(PYTHON_SRC:src/%=$(O)/%) $(EXTENSION) $(MONITOR_EXTENSION)

# putils/tools are programs, the other files are imported.
$(O)/python/%.py: src/python/%.py
	@mkdir -p $(@D)
	install -m $(if $(filter putils/%,$*),755,644) $< $@

$(O)/python/%/py.typed: src/python/%/py.typed
	@mkdir -p $(@D)
	install -m 644 $< $@

$(O)/extension/%.o: %.c
	@mkdir -p $(@D)$(NEED_HEADERS)
	$(CC) $(CPPFLAGS) -isystem $(PYTHON_INCLUDE) $(CFLAGS) -fPIC -fvisibility=hidden -MMD -MP -c $< -o $@

# Where the guest's library is: in a build, below a prefix, and (lib64, see packaging/wheel) in a
# virtual environment, with pip's --target, with its --user and --prefix.
$(EXTENSION): $(EXTENSION_SRC:%.c=$(O)/extension/%.o) $(O)/lib/libsonde_guest.so
$(MONITOR_EXTENSION): $(MONITOR_EXTENSION_SRC:%.c=$(O)/extension/%.o) \
	$(O)/lib/libsonde_monitor.so $(O)/lib/libsonde_guest.so
$(EXTENSION) $(MONITOR_EXTENSION):
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $(filter %.o,$^) -L$(O)/lib \
		$(patsubst lib%.so,-l%,$(notdir $(filter %.so,$^))) -Wl,-z,now \
		-Wl,-rpath,'$$ORIGIN/../../lib:$$ORIGIN/../..:$$ORIGIN/../../..' \
		-Wl,-rpath,'$$ORIGIN/../lib64:$$ORIGIN/../../../../lib64' -Wl,--disable-new-dtags

# Names under which the one binary speaks another command line.
$(addprefix $(O)/bin/,dynolog dyno python_stack_sniffer py_stack_snap): $(O)/bin/sonde
	ln -sf sonde $@

# --- the simulated vendor stack: sim/lib*/ become libraries, the other folders programs ---

SIM_LIBS := $(notdir $(patsubst %/,%,$(wildcard sim/lib*/)))
SIM_PROGS := $(filter-out $(SIM_LIBS) include common,$(notdir $(patsubst %/,%,$(wildcard sim/*/))))

.PHONY: sim
sim: $(SIM_LIBS:%=$(O)/sim/%.so) $(SIM_PROGS:%=$(O)/sim/%) $(O)/sim/libnvidia-ml.so.1

# The name by which programs load it.
$(O)/sim/libnvidia-ml.so.1: $(O)/sim/libnvidia-ml.so
	ln -sf libnvidia-ml.so $@

-include sim/deps.mk

$(O)/simobj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) -Isim/include -D_GNU_SOURCE $(CFLAGS) -fPIC -MMD -MP -c $< -o $@

define sim_lib
$(O)/sim/$(1).so: $(patsubst %.c,$(O)/simobj/%.o,$(wildcard sim/$(1)/*.c)) $(SIM_NEEDS_$(1):%=$(O)/sim/%.so)
	@mkdir -p $$(@D)
	$(CC) -shared -o $$@ $$(filter %.o,$$^) -L$(O)/sim $(SIM_NEEDS_$(1):lib%=-l%) \
		-Wl,-soname,$(1).so -Wl,-rpath,'$$$$ORIGIN' -lpthread -ldl
endef
$(foreach l,$(SIM_LIBS),$(eval $(call sim_lib,$(l))))

define sim_prog
$(O)/sim/$(1): $(patsubst %.c,$(O)/simobj/%.o,$(wildcard sim/$(1)/*.c)) $(SIM_NEEDS_$(1):%=$(O)/sim/%.so)
	@mkdir -p $$(@D)
	$(CC) -o $$@ $$(filter %.o,$$^) -L$(O)/sim $(SIM_NEEDS_$(1):lib%=-l%) \
		-Wl,-rpath,'$$$$ORIGIN' -lpthread -ldl
endef
$(foreach p,$(SIM_PROGS),$(eval $(call sim_prog,$(p))))

# --- tests and benchmarks ---

UNIT_OBJ := $(patsubst %.c,$(O)/own/%.o,$(wildcard tests/unit/*.c)) \
	$(filter-out $(O)/own/src/cli/main.o,$(OWN_OBJ))
$(O)/unit: $(UNIT_OBJ)
	$(CC) $(OWN_CFLAGS) -o $@ $^ $(OWN_LIBS)

.PHONY: unit
unit: $(O)/unit
	$(O)/unit

TARGETS := $(patsubst tests/targets/%.c,$(O)/targets/%,$(wildcard tests/targets/*.c))
$(O)/targets/%: tests/targets/%.c $(SIM_LIBS:%=$(O)/sim/%.so)
	@mkdir -p $(@D)
	$(CC) -Isim/include $(CPPFLAGS) $(CFLAGS) -MMD -MP -o $@ $< -L$(O)/sim \
		$(SIM_LIBS:lib%=-l%) -Wl,--as-needed -Wl,-rpath,'$$ORIGIN/../sim' -lpthread -ldl

.PHONY: targets
targets: $(TARGETS)

# --- checks ---
#
# `make check` runs all of them in order (tools/run_checks.py --list); each also runs alone.

# What fuzz targets and benchmarks link with: archives, so that a program takes only what it names.
# Guest code is in it too, compiled once more for our own processes and sanitised where SAN says so.
TEST_LIBS := $(O)/libown.a $(O)/libguest.a
$(O)/libown.a: $(filter-out $(O)/own/src/cli/main.o,$(OWN_OBJ))
$(O)/libguest.a: $(GUEST_SRC:%.c=$(O)/own/%.o) \
	$(patsubst %,$(O)/own/src/device/ascend/%.o,stars atb_text) \
	$(patsubst %.c,$(O)/own/%.o,$(wildcard src/device/*/activity*.c))
$(TEST_LIBS):
	@rm -f $@
	ar rcs $@ $^
$(O)/unit: $(O)/libguest.a
LINK_TEST = $(CC) $(OWN_CFLAGS) -o $@ -Wl,--start-group $^ -Wl,--end-group $(OWN_LIBS)
.SECONDARY: $(patsubst %.c,$(O)/own/%.o,$(wildcard tests/fuzz/*.c bench/*.c))

.PHONY: check check-quick everything
check check-quick:
	@$(PYTHON) tools/run_checks.py --build $(O) $(if $(filter check-quick,$@),--quick)

everything: all targets $(O)/unit bench-programs

.PHONY: check-format format check-layers check-headers check-imports check-python check-docs check-clean
check-format:
	@sh tools/check_format
format:
	@sh tools/check_format --fix
check-layers:
	@$(PYTHON) tools/check_layers.py
check-headers:
	@$(NEED_HEADERS)sh tools/check_headers $(CPPFLAGS) -isystem $(PYTHON_INCLUDE) -std=gnu11 $(WARN)
check-imports: guest
	@$(PYTHON) tools/check_imports.py $(O)/guest tools/banned-imports.txt
check-python:
	@PYTHONPYCACHEPREFIX=$(abspath $(O))/pycache $(PYTHON) -m compileall -q tests tools src packaging
check-docs:
	@$(PYTHON) tools/check_docs.py
check-clean:
	@$(PYTHON) tools/check_clean.py

.PHONY: e2e
e2e: all targets
	$(PYTHON) tools/run_e2e.py $(if $(ARGS),,--beside) -q -rs tests/e2e $(ARGS)

# Every tests/fuzz/fuzz_NAME.c, over tests/fuzz/corpus/NAME. `make fuzz-replay` runs the corpus and
# some fixed mutations of it; `make fuzz FUZZ=NAME` searches for FUZZ_SECONDS.

FUZZERS := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_MUTATIONS ?= 2000
FUZZ_SECONDS ?= 60

$(O)/own/tests/fuzz/%.o: OWN_CFLAGS += -Wno-missing-prototypes

$(O)/replay/%: $(O)/own/tests/fuzz/fuzz_%.o $(O)/own/tests/fuzz/replay.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(LINK_TEST)

$(O)/fuzz/%: $(O)/own/tests/fuzz/fuzz_%.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(LINK_TEST) -fsanitize=fuzzer

.PHONY: fuzz fuzz-replay fuzz-replay-run
fuzz-replay-run: $(FUZZERS:%=$(O)/replay/%)
	@for f in $(FUZZERS); do \
		$(O)/replay/$$f -n $(FUZZ_MUTATIONS) -o $(O)/replay/crash-$$f \
			tests/fuzz/corpus/$$f || exit 1; \
	done
fuzz-replay:
	+$(MAKE) O=$(O)-asan CC=clang SAN=address,undefined fuzz-replay-run
fuzz:
	@test -n '$(filter $(FUZZ),$(FUZZERS))' || { echo 'make fuzz FUZZ=NAME: $(FUZZERS)'; exit 2; }
	+$(MAKE) O=$(O)-fuzz CC=clang SAN=fuzzer-no-link,address,undefined $(O)-fuzz/fuzz/$(FUZZ)
	@mkdir -p $(O)-fuzz/corpus/$(FUZZ)
	$(O)-fuzz/fuzz/$(FUZZ) -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=$(O)-fuzz/ \
		$(O)-fuzz/corpus/$(FUZZ) $(wildcard tests/fuzz/corpus/$(FUZZ))

# bench/NAME.c is a program that measures, prints its lines and fails above its budget. Two kinds
# are helpers and do not run by themselves: lib*.c is a library to preload, job_*.c a job on the
# simulated stack.

BENCH_LIBS := $(patsubst bench/%.c,$(O)/bench/%.so,$(wildcard bench/lib*.c))
BENCH_JOBS := $(patsubst bench/%.c,$(O)/bench/%,$(wildcard bench/job_*.c))
BENCHES := $(filter-out $(BENCH_JOBS) $(BENCH_LIBS:.so=),$(patsubst bench/%.c,$(O)/bench/%,$(wildcard bench/*.c)))

$(BENCHES): $(O)/bench/%: $(O)/own/bench/%.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(LINK_TEST)

$(BENCH_LIBS): $(O)/bench/%.so: bench/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Isim/include $(CFLAGS) -fPIC -shared -MMD -MP -o $@ $< -lpthread -ldl

$(BENCH_JOBS): $(O)/bench/%: bench/%.c $(SIM_LIBS:%=$(O)/sim/%.so)
	@mkdir -p $(@D)
	$(CC) -Isim/include $(CPPFLAGS) $(CFLAGS) -MMD -MP -o $@ $< -L$(O)/sim \
		$(SIM_LIBS:lib%=-l%) -Wl,--as-needed -Wl,-rpath,'$$ORIGIN/../sim' -lpthread -ldl

.PHONY: bench bench-quick bench-programs soak
bench-programs: $(BENCHES) $(BENCH_LIBS) $(BENCH_JOBS)
bench bench-quick: all targets bench-programs
	@status=0; for b in $(sort $(BENCHES)); do \
		$(if $(filter bench-quick,$@),BENCH_QUICK=1) SONDE_BUILD=$(abspath $(O)) $$b || \
		{ echo "$$b: failed"; status=1; }; \
	done; exit $$status

soak: all targets
	SOAK=1 SONDE_TEST_DEADLINE=14400 $(PYTHON) tools/run_e2e.py -q -rs -m soak tests/e2e $(ARGS)
	+$(MAKE) bench

# --- install ---

UNITS := $(wildcard packaging/systemd/*)
SHARED := packaging/README.md $(wildcard $(foreach d,logrotate sysctl slurm kubernetes prometheus grafana,packaging/$(d)/*))
PACKAGES := $(PYTHON_SRC:src/%=%) $(patsubst $(O)/%,%,$(EXTENSION) $(MONITOR_EXTENSION))
INSTALLED := $(addprefix bin/,sonde msmemscope dynolog dyno python_stack_sniffer py_stack_snap) \
	$(addprefix lib/,$(PACKAGES) libsonde_guest.so $(HOOK_LIBS:%=%.so)) \
	$(wildcard include/sonde/*.h) $(patsubst docs/man/%,share/man/man1/%,$(wildcard docs/man/*.1)) \
	$(UNITS:packaging/systemd/%=lib/systemd/system/%) $(SHARED:packaging/%=share/sonde/%)

.PHONY: install install-python install-packaging install-sim uninstall
install: guest own install-python install-packaging
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib include/sonde share/man/man1)
	install -m 755 $(O)/bin/sonde $(O)/bin/msmemscope $(DESTDIR)$(PREFIX)/bin
	ln -sf sonde $(DESTDIR)$(PREFIX)/bin/dynolog
	ln -sf sonde $(DESTDIR)$(PREFIX)/bin/dyno
	ln -sf sonde $(DESTDIR)$(PREFIX)/bin/python_stack_sniffer
	ln -sf sonde $(DESTDIR)$(PREFIX)/bin/py_stack_snap
	install -m 755 $(O)/lib/libsonde_guest.so $(HOOK_LIBS:%=$(O)/lib/%.so) $(DESTDIR)$(PREFIX)/lib
	$(if $(wildcard include/sonde/*.h),install -m 644 include/sonde/*.h $(DESTDIR)$(PREFIX)/include/sonde)
	$(if $(wildcard docs/man/*.1),install -m 644 docs/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1)

# Beside the libraries, for every Python: PYTHONPATH=PREFIX/lib/python. With PYTHON_SITE=directory
# one interpreter finds them by itself, through a file in that directory of its packages.
install-python: python
	@for f in $(PACKAGES); do \
		install -D -m $$(test -x $(O)/$$f && echo 755 || echo 644) $(O)/$$f \
			$(DESTDIR)$(PREFIX)/lib/$$f || exit 1; \
	done
ifneq ($(PYTHON_SITE),)
	install -d $(DESTDIR)$(PYTHON_SITE)
	echo $(PREFIX)/lib/python >$(DESTDIR)$(PYTHON_SITE)/sonde.pth
endif

# Units name the programs where this puts them; everything else is for the administrator to pick.
install-packaging:
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,lib/systemd/system share/sonde)
	@for u in $(notdir $(UNITS)); do \
		sed 's,/usr/local/bin/,$(PREFIX)/bin/,' packaging/systemd/$$u \
			>$(DESTDIR)$(PREFIX)/lib/systemd/system/$$u || exit 1; \
		chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/$$u; \
	done
	@for f in $(SHARED:packaging/%=%); do \
		install -D -m $$(test -x packaging/$$f && echo 755 || echo 644) packaging/$$f \
			$(DESTDIR)$(PREFIX)/share/sonde/$$f || exit 1; \
	done

install-sim: sim
	install -d $(DESTDIR)$(PREFIX)/libexec/sonde-sim
	install -m 755 $(SIM_LIBS:%=$(O)/sim/%.so) $(SIM_PROGS:%=$(O)/sim/%) \
		$(DESTDIR)$(PREFIX)/libexec/sonde-sim
	ln -sf libnvidia-ml.so $(DESTDIR)$(PREFIX)/libexec/sonde-sim/libnvidia-ml.so.1

# Also what Python has kept of the packages when it imported them.
PACKAGE_DIRS := $(patsubst %/,lib/%,$(sort $(dir $(PACKAGES))))
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(INSTALLED))
	rm -rf $(DESTDIR)$(PREFIX)/libexec/sonde-sim $(PACKAGE_DIRS:%=$(DESTDIR)$(PREFIX)/%/__pycache__)
	$(if $(PYTHON_SITE),rm -f $(DESTDIR)$(PYTHON_SITE)/sonde.pth)
	@printf '%s\n' $(addprefix $(DESTDIR)$(PREFIX)/,$(PACKAGE_DIRS) lib/python/putils lib/python include/sonde \
		$(patsubst packaging/%/,share/sonde/%,$(sort $(dir $(SHARED)))) share/sonde) | \
		sort -r | xargs rmdir 2>/dev/null || true

# Only where objects are: a build directory may hold much else (interpreters, environments).
-include $(shell find /dev/null $(wildcard $(addprefix $(O)/,guest own extension simobj targets bench)) \
	-name '*.d' -type f 2>/dev/null)
