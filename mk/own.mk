# SPDX-License-Identifier: MulanPSL-2.0
# Our own processes: one binary, many names.

OWN_CFLAGS := $(CFLAGS) $(SANFLAGS)
# Workbooks are written where there is a library for it; src/activity/files/xlsx.c asks the same.
XLSX_LIBS := $(shell printf '\#include <stddef.h>\n\#include <xlsxwriter.h>\n' | $(CC) -E -x c - >/dev/null 2>&1 && echo -lxlsxwriter)
OWN_LIBS := -levent -levent_openssl -lssl -lcrypto -lsqlite3 -ljansson $(XLSX_LIBS) -lzstd -lz -lxxhash -ldw -lelf -lpthread -ldl -lm

# Everything that is neither guest code nor Python; what unwinds Python serves both worlds.
OWN_SRC := $(shell find src -name '*.c' -not -path 'src/guest/*' -not -path 'src/device/*/hooks/*' \
	-not -path 'src/device/*/activity/*' -not -path 'src/unwind/native/*' -not -path 'src/python/*')
OWN_OBJ := $(OWN_SRC:%.c=$(O)/own/%.o)

.PHONY: own
own: $(addprefix $(O)/bin/,sonde msmemscope dynolog dyno python_stack_sniffer py_stack_snap) python

$(O)/own/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(OWN_CFLAGS) -MMD -MP -c $< -o $@

# Pages and their scripts are inside the program.
$(O)/own/src/daemon/http/routes.o $(O)/own/src/formats/profile/flame.o: $(wildcard src/web/*.*)
$(O)/own/src/report/html.o: $(wildcard src/web/report/*)

$(O)/bin/sonde: $(OWN_OBJ)
	@mkdir -p $(@D)
	$(CC) $(OWN_CFLAGS) -o $@ $^ $(OWN_LIBS)

$(O)/bin/msmemscope: src/cli/msmemscope.sh
	@mkdir -p $(@D)
	install -m 755 $< $@

# Names under which the one binary speaks another command line.
$(addprefix $(O)/bin/,dynolog dyno python_stack_sniffer py_stack_snap): $(O)/bin/sonde
	ln -sf sonde $@
