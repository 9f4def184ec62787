# SPDX-License-Identifier: MulanPSL-2.0
# The guest: libsonde_guest.so is the runtime, the others carry the names that jobs preload.

# The libraries that go into other people's processes are never sanitised.
GUEST_CFLAGS := $(CFLAGS) -fPIC -fvisibility=hidden -fno-plt -fno-stack-protector
GUEST_LDFLAGS := -shared -Wl,-z,nodelete -Wl,-z,now -Wl,--no-undefined -Wl,-rpath,'$$ORIGIN' -ldl

GUEST_SRC := $(wildcard $(addsuffix /*.c,$(addprefix src/,guest/runtime guest/collect guest/watch unwind/native unwind/python))) \
	src/wire/proc_stat.c src/wire/rank_env.c
GUEST_OBJ := $(GUEST_SRC:%.c=$(O)/guest/%.o)

# What a job does to all its libraries; in one of each set that is preloaded together.
INTERPOSE := $(filter-out %/got.c,$(wildcard src/guest/interpose/*.c))
HOOKS_libleaks_ascend_hal_hook := src/device/ascend/hooks/hal_hooks.c $(INTERPOSE)
HOOKS_libascend_kernel_hook := $(addprefix src/device/ascend/hooks/,kernel_hooks.c stars.c stars_reader.c)
HOOKS_libascend_mstx_hook := src/device/ascend/hooks/mstx_hooks.c
HOOKS_libatb_abi_0_hook := $(addprefix src/device/ascend/hooks/,atb_hooks.c atb_text.c)
HOOKS_libatb_abi_1_hook := $(HOOKS_libatb_abi_0_hook)
HOOKS_libsonde_host_hook := src/device/host/hooks/malloc_hooks.c
HOOKS_libsonde_cuda_hook := $(wildcard src/device/cuda/hooks/*.c) $(addprefix src/guest/interpose/,next.c got.c)
# The monitor: what asks the daemon, and the sources of activities.
HOOKS_libsonde_monitor := $(wildcard src/guest/monitor/*.c src/device/*/activity/*.c) \
	src/wire/request.c src/wire/fabric.c src/wire/rank_env.c src/wire/proc_stat.c src/guest/runtime/env.c $(INTERPOSE) \
	src/guest/interpose/got.c
HOOK_LIBS := $(patsubst HOOKS_%,%,$(filter HOOKS_%,$(.VARIABLES)))
HOOK_SRC := $(sort $(foreach l,$(HOOK_LIBS),$(HOOKS_$(l))))

.PHONY: guest
guest: $(O)/lib/libsonde_guest.so $(HOOK_LIBS:%=$(O)/lib/%.so)

$(O)/guest/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(GUEST_CFLAGS) -MMD -MP -c $< -o $@

# C++ exceptions fly through these hooks.
$(O)/guest/src/device/ascend/hooks/atb_hooks.o: GUEST_CFLAGS += -fexceptions
# Has a thread of its own; older C libraries keep threads in a library apart.
$(O)/lib/libascend_kernel_hook.so $(O)/lib/libsonde_guest.so $(O)/lib/libsonde_monitor.so: private GUEST_LDFLAGS += -lpthread

$(O)/lib/libsonde_guest.so: $(GUEST_OBJ)
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(GUEST_LDFLAGS) -Wl,-soname,$(@F)

# The versions that the C library gave its first functions on this machine, and the start of programs.
INTERPOSE_LIBS := $(addprefix $(O)/lib/,libleaks_ascend_hal_hook.so libsonde_monitor.so libsonde_cuda_hook.so)
$(O)/guest/interpose.map: mk/guest.mk
	@mkdir -p $(@D)
	printf '%s { };\nGLIBC_2.34 { };\n' $(if $(findstring aarch64,$(shell $(CC) -dumpmachine)),GLIBC_2.17,GLIBC_2.2.5) > $@
$(INTERPOSE_LIBS): $(O)/guest/interpose.map
$(INTERPOSE_LIBS): private GUEST_LDFLAGS += -Wl,--version-script=$(O)/guest/interpose.map

define hook_lib
$(O)/lib/$(1).so: $(patsubst %.c,$(O)/guest/%.o,$(HOOKS_$(1))) $(O)/lib/libsonde_guest.so
	$(CC) -o $$@ $$(filter %.o,$$^) -L$(O)/lib -lsonde_guest $$(GUEST_LDFLAGS) -Wl,-soname,$$(@F)
endef
$(foreach l,$(HOOK_LIBS),$(eval $(call hook_lib,$(l))))
