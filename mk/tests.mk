# SPDX-License-Identifier: MulanPSL-2.0
# Unit tests, the programs that end-to-end tests look at, fuzz targets.

$(O)/own/tests/unit/%.o: CPPFLAGS += -Itests/unit
UNIT_OBJ := $(patsubst %.c,$(O)/own/%.o,$(shell find tests/unit -name '*.c')) \
	$(filter-out $(O)/own/src/cli/main.o,$(OWN_OBJ))
$(O)/unit: $(UNIT_OBJ)
	$(CC) $(OWN_CFLAGS) -Wl,--wrap=pthread_create,--wrap=sigaction -o $@ $^ $(OWN_LIBS)

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

# What fuzz targets and benchmarks link with: archives, so that a program takes only what it names.
# Guest code is in it too, compiled once more for our own processes and sanitised where SAN says so.
TEST_LIBS := $(O)/libown.a $(O)/libguest.a
$(O)/libown.a: $(filter-out $(O)/own/src/cli/main.o,$(OWN_OBJ))
$(O)/libguest.a: $(GUEST_SRC:%.c=$(O)/own/%.o) \
	$(patsubst %,$(O)/own/src/device/ascend/hooks/%.o,stars atb_text) \
	$(patsubst %.c,$(O)/own/%.o,$(wildcard src/device/*/activity/*.c) src/guest/interpose/got.c)
$(TEST_LIBS):
	@rm -f $@
	ar qcs $@ $^
$(O)/unit: $(O)/libguest.a
# Guest code compares the addresses of frames, and a sanitizer keeps locals elsewhere where nothing is optimized.
$(O)/own/src/guest/%.o: OWN_CFLAGS += $(if $(SAN),-O2)
# Where tests compute for long: a sanitizer without optimization takes several times as long.
$(addprefix $(O)/own/,src/base/containers/%.o src/memory/analysis/compare/%.o src/unwind/native/%.o \
	tests/unit/memory/analysis/compare/%.o): OWN_CFLAGS += $(if $(SAN),-O2)
LINK_TEST = $(CC) $(OWN_CFLAGS) -o $@ -Wl,--start-group $^ -Wl,--end-group $(OWN_LIBS)
.SECONDARY: $(patsubst %.c,$(O)/own/%.o,$(wildcard tests/fuzz/*.c bench/*.c))

.PHONY: e2e
e2e: all targets soak-programs
	$(PYTHON) tools/run_e2e.py $(if $(ARGS),,--beside) -q -rs tests/e2e $(ARGS)

# All programs of tests/frameworks, with the newest PyTorch here; `make e2e` runs some of them.
FRAMEWORKS_PYTHON ?= $(lastword $(PYTHON) $(wildcard build/torch/root/usr/bin/python3.??))
.PHONY: check-frameworks
check-frameworks: all
	tools/fetch_frameworks $(FRAMEWORKS_PYTHON) $(O)/frameworks
	-tools/fetch_frameworks --mindspore $(PYTHON) $(O)/mindspore
	PYTHONPATH=$(abspath $(O)/frameworks/site-packages) $(PYTHON) tests/frameworks/run.py \
		--bin $(O)/bin/sonde --python $(FRAMEWORKS_PYTHON) $(ARGS)
	PYTHONPATH=$(abspath $(O)/mindspore/site-packages) $(PYTHON) tests/frameworks/run.py \
		--bin $(O)/bin/sonde --python $(PYTHON) mindspore_cells

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

MAKE_FUZZ = $(MAKE) O=$(O)-fuzz CC=clang SAN=fuzzer-no-link,address,undefined

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
	+$(MAKE_FUZZ) $(O)-fuzz/fuzz/$(FUZZ)
	@mkdir -p $(O)-fuzz/corpus/$(FUZZ)
	$(O)-fuzz/fuzz/$(FUZZ) -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=$(O)-fuzz/ \
		$(O)-fuzz/corpus/$(FUZZ) $(wildcard tests/fuzz/corpus/$(FUZZ))
