# SPDX-License-Identifier: MulanPSL-2.0
# Python: packages, and one extension for every CPython from 3.8 on.

PYTHON_SRC := $(shell find src/python -name '*.py' -o -name py.typed)
# The headers of any CPython from 3.8 on will do; looked for once, and only by who needs them.
PYTHON_INCLUDE ?= $(eval PYTHON_INCLUDE := $$(shell sh tools/python_include $$(PYTHON)))$(PYTHON_INCLUDE)
NEED_HEADERS = $(if $(PYTHON_INCLUDE),,$(error no Python.h of CPython 3.8 or later: ./bootstrap build \
	installs it (package python3-dev or python3-devel), or give PYTHON_INCLUDE=directory))
# The options of msmemscope are read by the same code as on the command line.
EXTENSION_SRC := $(wildcard src/python/_sonde/*.c) $(wildcard src/base/numbers/*.c) \
	src/unwind/python/origin.c \
	$(addprefix src/memory/options/,config.c options.c values.c) \
	$(addprefix src/base/,err.c fs.c fs_output.c fs_safe.c log.c mem.c containers/buf.c text/args.c text/args_words.c text/number_read.c text/printable.c text/text.c)
EXTENSION := $(O)/python/sonde/_sonde.abi3.so
# The monitor's: apart, since it brings libsonde_monitor.so along.
MONITOR_EXTENSION := $(O)/python/sonde/_monitor.abi3.so
MONITOR_EXTENSION_SRC := $(wildcard src/python/_monitor/*.c) $(addprefix src/python/_sonde/,autograd.c layer_table.c) \
	src/unwind/python/origin.c

.PHONY: python
python: $(PYTHON_SRC:src/%=$(O)/%) $(EXTENSION) $(MONITOR_EXTENSION)

# putils/tools are programs, the other files are imported.
$(O)/python/%.py: src/python/%.py
	@mkdir -p $(@D)
	install -m $(if $(filter putils/tools/%,$*),755,644) $< $@

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
		$(patsubst lib%.so,-l%,$(notdir $(filter %.so,$^))) -Wl,--as-needed -lpthread -lm -Wl,-z,now \
		-Wl,-rpath,'$$ORIGIN/../../lib:$$ORIGIN/../..:$$ORIGIN/../../..' \
		-Wl,-rpath,'$$ORIGIN/../lib64:$$ORIGIN/../../../../lib64' -Wl,--disable-new-dtags
