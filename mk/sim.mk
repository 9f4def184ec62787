# SPDX-License-Identifier: MulanPSL-2.0
# The simulated vendor stack: sim/lib*/ become libraries, the other folders programs.

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
