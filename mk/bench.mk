# SPDX-License-Identifier: MulanPSL-2.0
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

# In their short form these fail on nothing that a busy machine changes: `make check` runs them
# beside the end-to-end tests. The others follow, alone.
BENCHES_BESIDE := $(addprefix $(O)/bench/,activity_files activity_rate activity_record analyze_rate compare_rate cuda_hook_cost \
	daemon_fanout daemon_idle daemon_ipc daemon_rpc daemon_tls_flood explain_rate export_rate hook_cost module_cost \
	monitor_idle putils_cost record_cost recorder_rate stack_discover stack_memory stack_native stack_rate stack_skew \
	stack_slowdown stack_trace_writer stack_truth timeline_rate trace_stacks unwind_cost)
bench: RUN_BENCHES := $(BENCHES)
bench-quick: RUN_BENCHES := $(filter-out $(BENCHES_BESIDE),$(BENCHES))
bench-quick-beside: RUN_BENCHES := $(BENCHES_BESIDE)
bench-quick bench-quick-beside: export BENCH_QUICK := 1

.PHONY: bench bench-quick bench-quick-beside bench-programs
bench-programs: $(BENCHES) $(BENCH_LIBS) $(BENCH_JOBS)
bench bench-quick bench-quick-beside: all targets bench-programs
	@status=0; for b in $(sort $(RUN_BENCHES)); do \
		SONDE_BUILD=$(abspath $(O)) $$b || \
		{ echo "$$b: failed"; status=1; }; \
	done; exit $$status
