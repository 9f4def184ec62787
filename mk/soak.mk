# SPDX-License-Identifier: MulanPSL-2.0
# The long tests (tests/soak/run.py) and one table of what they found:
#
#   make soak                          the kill matrix, tests marked `soak`, fuzzing, benchmarks
#   make soak-kill SOAK_ROUNDS=1000 SOAK_SEED=7     the matrix alone
#   make soak-kill SOAK_ROUND=7:41     one of its rounds again
#   make soak-fuzz FUZZ_SECONDS=60 FUZZ_CORPUS=DIR  every fuzz target; DIR keeps what it found

export SOAK_ROUNDS SOAK_SEED SOAK_ROUND FUZZ_SECONDS FUZZ_CORPUS

# The same build with a sonde whose disk and memory can fail (tests/soak/faults.c). Libraries find their
# program in bin beside their own folder, so this one is no link.
$(O)/soak/bin/sonde: $(OWN_OBJ) $(O)/own/tests/soak/faults.o
	@mkdir -p $(@D)
	$(CC) $(OWN_CFLAGS) -o $@ $^ $(OWN_LIBS)

.PHONY: soak soak-kill soak-fuzz soak-programs fuzz-programs
soak-programs: $(O)/soak/bin/sonde guest targets sim
	@mkdir -p $(O)/soak/lib
	@cd $(O)/soak/lib && ln -sf ../../lib/*.so .
	@ln -sfn ../targets $(O)/soak/targets
	@ln -sfn ../sim $(O)/soak/sim
	@ln -sf sonde $(O)/soak/bin/dyno
	@install -m 755 src/cli/msmemscope.sh $(O)/soak/bin/msmemscope
fuzz-programs: $(FUZZERS:%=$(O)/fuzz/%)

RUN_SOAK = $(PYTHON) tests/soak/run.py --build $(O)
soak-kill: all targets soak-programs
	$(RUN_SOAK) $(ARGS) kill
soak-fuzz:
	+$(MAKE_FUZZ) fuzz-programs
	$(RUN_SOAK) --fuzzers '$(FUZZERS)' fuzz
soak: all targets soak-programs bench-programs
	+$(MAKE_FUZZ) fuzz-programs
	$(RUN_SOAK) --fuzzers '$(FUZZERS)' --benches '$(sort $(BENCHES))' $(ARGS)
