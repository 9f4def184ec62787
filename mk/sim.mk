# SPDX-License-Identifier: MulanPSL-2.0
# The simulated vendor stack: sim/lib*/ become libraries, the other folders programs.

SIM_LIBS := $(notdir $(patsubst %/,%,$(wildcard sim/lib*/)))
SIM_PROGS := $(filter-out $(SIM_LIBS) include common,$(notdir $(patsubst %/,%,$(wildcard sim/*/))))

.PHONY: sim
sim: $(SIM_LIBS:%=$(O)/sim/%.so) $(SIM_PROGS:%=$(O)/sim/%) $(O)/sim/libnvidia-ml.so.1 $(O)/sim/libcuda.so.1 \
	$(O)/sim/old/libcuda.so.1

# The names by which programs load them. The driver calls its own functions, whoever has their names.
$(O)/sim/libnvidia-ml.so.1 $(O)/sim/libcuda.so.1: $(O)/sim/%.so.1: $(O)/sim/%.so
	ln -sf $*.so $@
SIM_SONAME_libcuda := libcuda.so.1
SIM_LDFLAGS_libcuda := -Wl,-Bsymbolic-functions,--dynamic-list-data
# A driver of CUDA 10.1: neither virtual memory, nor pools, nor cuGetProcAddress().
$(O)/sim/old/libcuda.so.1: $(patsubst %,$(O)/simobj/sim/libcuda/%.o,cuda context blocks memory)
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $^ $(SIM_LDFLAGS_libcuda) -Wl,-soname,libcuda.so.1 -lpthread -ldl

-include sim/deps.mk

$(O)/simobj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) -Isim/include -D_GNU_SOURCE $(CFLAGS) -fPIC -MMD -MP -c $< -o $@

define sim_lib
$(O)/sim/$(1).so: $(patsubst %.c,$(O)/simobj/%.o,$(wildcard sim/$(1)/*.c)) $(SIM_NEEDS_$(1):%=$(O)/sim/%.so)
	@mkdir -p $$(@D)
	$(CC) -shared -o $$@ $$(filter %.o,$$^) -L$(O)/sim $(SIM_NEEDS_$(1):lib%=-l%) \
		-Wl,-soname,$(or $(SIM_SONAME_$(1)),$(1).so) $(SIM_LDFLAGS_$(1)) -Wl,-rpath,'$$$$ORIGIN' -lpthread -ldl
endef
$(foreach l,$(SIM_LIBS),$(eval $(call sim_lib,$(l))))

define sim_prog
$(O)/sim/$(1): $(patsubst %.c,$(O)/simobj/%.o,$(wildcard sim/$(1)/*.c)) $(SIM_NEEDS_$(1):%=$(O)/sim/%.so)
	@mkdir -p $$(@D)
	$(CC) -o $$@ $$(filter %.o,$$^) -L$(O)/sim $(SIM_NEEDS_$(1):lib%=-l%) \
		-Wl,-rpath,'$$$$ORIGIN' -lpthread -ldl
endef
$(foreach p,$(SIM_PROGS),$(eval $(call sim_prog,$(p))))
