/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Made by tools/python_offsets from CPython's headers: do not edit. */
#include "unwind/python/layout_tables.h"

/* clang-format off */
const struct python_layout python_layout_tables[PYTHON_TABLES] = {
	{
		.minor = 7,
		.lines = PYTHON_LNOTAB,
		.runtime = {
			.interpreters_head = 24, .tstate_current = 1480, .gil_locked = 1280,
			.gil_last_holder = 1272, .gc_collecting = 632
		},
		.interp = {
			.next = 0, .id = 16, .threads_head = 8, .modules = 40,
			.gc_collecting = PYTHON_NONE, .gil = PYTHON_NONE,
			.code_generation = PYTHON_NONE
		},
		.gil = {
			.locked = PYTHON_NONE, .last_holder = PYTHON_NONE
		},
		.tstate = {
			.size = 184, .prev = 0, .next = 8, .interp = 16, .thread_id = 176,
			.native_thread_id = PYTHON_NONE, .frame = 24, .cframe = PYTHON_NONE,
			.datastack_chunk = PYTHON_NONE, .base_frame = PYTHON_NONE,
			.holds_gil = PYTHON_NONE
		},
		.cframe_current = PYTHON_NONE,
		.frame = {
			.size = 120, .back = 24, .code = 32, .lasti = 104, .executing = 116,
			.owner = PYTHON_NONE, .is_entry = PYTHON_NONE,
			.tlbc_index = PYTHON_NONE, .locals = 360, .stackpointer = PYTHON_NONE
		},
		.code = {
			.size = 120, .filename = 96, .name = 104, .qualname = PYTHON_NONE,
			.linetable = 112, .firstlineno = 36, .argcount = 16,
			.kwonlyargcount = 20, .flags = 32, .nlocals = 24, .varnames = 64,
			.localsplusnames = PYTHON_NONE, .localspluskinds = PYTHON_NONE,
			.instructions = 40, .tlbc = PYTHON_NONE
		},
		.object = {
			.object_size = 16, .type = 8, .var_size = 16, .type_name = 24,
			.type_flags = 168, .type_dictoffset = 288, .type_basicsize = 32,
			.bytes_data = 32, .tuple_items = 24, .list_items = 24,
			.float_value = 16, .long_tag = 16, .long_digits = 24
		},
		.text = {
			.length = 16, .state = 32, .ascii_data = 48, .compact_data = 72,
			.data = 72, .kind_shift = 2, .compact_bit = 5, .ascii_bit = 6
		},
		.dict = {
			.used = 16, .keys = 32, .values = 40, .cached_keys = 856
		},
	},
	{
		.minor = 8,
		.lines = PYTHON_LNOTAB,
		.runtime = {
			.interpreters_head = 32, .tstate_current = 1368, .gil_locked = 1168,
			.gil_last_holder = 1160, .gc_collecting = 544
		},
		.interp = {
			.next = 0, .id = 16, .threads_head = 8, .modules = 56,
			.gc_collecting = PYTHON_NONE, .gil = PYTHON_NONE,
			.code_generation = PYTHON_NONE
		},
		.gil = {
			.locked = PYTHON_NONE, .last_holder = PYTHON_NONE
		},
		.tstate = {
			.size = 184, .prev = 0, .next = 8, .interp = 16, .thread_id = 176,
			.native_thread_id = PYTHON_NONE, .frame = 24, .cframe = PYTHON_NONE,
			.datastack_chunk = PYTHON_NONE, .base_frame = PYTHON_NONE,
			.holds_gil = PYTHON_NONE
		},
		.cframe_current = PYTHON_NONE,
		.frame = {
			.size = 120, .back = 24, .code = 32, .lasti = 104, .executing = 116,
			.owner = PYTHON_NONE, .is_entry = PYTHON_NONE,
			.tlbc_index = PYTHON_NONE, .locals = 360, .stackpointer = PYTHON_NONE
		},
		.code = {
			.size = 128, .filename = 104, .name = 112, .qualname = PYTHON_NONE,
			.linetable = 120, .firstlineno = 40, .argcount = 16,
			.kwonlyargcount = 24, .flags = 36, .nlocals = 28, .varnames = 72,
			.localsplusnames = PYTHON_NONE, .localspluskinds = PYTHON_NONE,
			.instructions = 48, .tlbc = PYTHON_NONE
		},
		.object = {
			.object_size = 16, .type = 8, .var_size = 16, .type_name = 24,
			.type_flags = 168, .type_dictoffset = 288, .type_basicsize = 32,
			.bytes_data = 32, .tuple_items = 24, .list_items = 24,
			.float_value = 16, .long_tag = 16, .long_digits = 24
		},
		.text = {
			.length = 16, .state = 32, .ascii_data = 48, .compact_data = 72,
			.data = 72, .kind_shift = 2, .compact_bit = 5, .ascii_bit = 6
		},
		.dict = {
			.used = 16, .keys = 32, .values = 40, .cached_keys = 872
		},
	},
	{
		.minor = 9,
		.lines = PYTHON_LNOTAB,
		.runtime = {
			.interpreters_head = 32, .tstate_current = 568, .gil_locked = 368,
			.gil_last_holder = 360, .gc_collecting = PYTHON_NONE
		},
		.interp = {
			.next = 0, .id = 24, .threads_head = 8, .modules = 856,
			.gc_collecting = 816, .gil = PYTHON_NONE, .code_generation = PYTHON_NONE
		},
		.gil = {
			.locked = PYTHON_NONE, .last_holder = PYTHON_NONE
		},
		.tstate = {
			.size = 184, .prev = 0, .next = 8, .interp = 16, .thread_id = 176,
			.native_thread_id = PYTHON_NONE, .frame = 24, .cframe = PYTHON_NONE,
			.datastack_chunk = PYTHON_NONE, .base_frame = PYTHON_NONE,
			.holds_gil = PYTHON_NONE
		},
		.cframe_current = PYTHON_NONE,
		.frame = {
			.size = 120, .back = 24, .code = 32, .lasti = 104, .executing = 116,
			.owner = PYTHON_NONE, .is_entry = PYTHON_NONE,
			.tlbc_index = PYTHON_NONE, .locals = 360, .stackpointer = PYTHON_NONE
		},
		.code = {
			.size = 128, .filename = 104, .name = 112, .qualname = PYTHON_NONE,
			.linetable = 120, .firstlineno = 40, .argcount = 16,
			.kwonlyargcount = 24, .flags = 36, .nlocals = 28, .varnames = 72,
			.localsplusnames = PYTHON_NONE, .localspluskinds = PYTHON_NONE,
			.instructions = 48, .tlbc = PYTHON_NONE
		},
		.object = {
			.object_size = 16, .type = 8, .var_size = 16, .type_name = 24,
			.type_flags = 168, .type_dictoffset = 288, .type_basicsize = 32,
			.bytes_data = 32, .tuple_items = 24, .list_items = 24,
			.float_value = 16, .long_tag = 16, .long_digits = 24
		},
		.text = {
			.length = 16, .state = 32, .ascii_data = 48, .compact_data = 72,
			.data = 72, .kind_shift = 2, .compact_bit = 5, .ascii_bit = 6
		},
		.dict = {
			.used = 16, .keys = 32, .values = 40, .cached_keys = 864
		},
	},
	{
		.minor = 10,
		.lines = PYTHON_LINETABLE,
		.runtime = {
			.interpreters_head = 32, .tstate_current = 568, .gil_locked = 368,
			.gil_last_holder = 360, .gc_collecting = PYTHON_NONE
		},
		.interp = {
			.next = 0, .id = 24, .threads_head = 8, .modules = 856,
			.gc_collecting = 816, .gil = PYTHON_NONE, .code_generation = PYTHON_NONE
		},
		.gil = {
			.locked = PYTHON_NONE, .last_holder = PYTHON_NONE
		},
		.tstate = {
			.size = 184, .prev = 0, .next = 8, .interp = 16, .thread_id = 176,
			.native_thread_id = PYTHON_NONE, .frame = 24, .cframe = PYTHON_NONE,
			.datastack_chunk = PYTHON_NONE, .base_frame = PYTHON_NONE,
			.holds_gil = PYTHON_NONE
		},
		.cframe_current = PYTHON_NONE,
		.frame = {
			.size = 112, .back = 24, .code = 32, .lasti = 96, .executing = 108,
			.owner = PYTHON_NONE, .is_entry = PYTHON_NONE,
			.tlbc_index = PYTHON_NONE, .locals = 352, .stackpointer = PYTHON_NONE
		},
		.code = {
			.size = 128, .filename = 104, .name = 112, .qualname = PYTHON_NONE,
			.linetable = 120, .firstlineno = 40, .argcount = 16,
			.kwonlyargcount = 24, .flags = 36, .nlocals = 28, .varnames = 72,
			.localsplusnames = PYTHON_NONE, .localspluskinds = PYTHON_NONE,
			.instructions = 48, .tlbc = PYTHON_NONE
		},
		.object = {
			.object_size = 16, .type = 8, .var_size = 16, .type_name = 24,
			.type_flags = 168, .type_dictoffset = 288, .type_basicsize = 32,
			.bytes_data = 32, .tuple_items = 24, .list_items = 24,
			.float_value = 16, .long_tag = 16, .long_digits = 24
		},
		.text = {
			.length = 16, .state = 32, .ascii_data = 48, .compact_data = 72,
			.data = 72, .kind_shift = 2, .compact_bit = 5, .ascii_bit = 6
		},
		.dict = {
			.used = 16, .keys = 32, .values = 40, .cached_keys = 872
		},
	},
	{
		.minor = 11,
		.lines = PYTHON_LOCATIONS,
		.runtime = {
			.interpreters_head = 40, .tstate_current = 576, .gil_locked = 376,
			.gil_last_holder = 368, .gc_collecting = PYTHON_NONE
		},
		.interp = {
			.next = 0, .id = 48, .threads_head = 16, .modules = 888,
			.gc_collecting = 848, .gil = PYTHON_NONE, .code_generation = PYTHON_NONE
		},
		.gil = {
			.locked = PYTHON_NONE, .last_holder = PYTHON_NONE
		},
		.tstate = {
			.size = 304, .prev = 0, .next = 8, .interp = 16, .thread_id = 152,
			.native_thread_id = 160, .frame = PYTHON_NONE, .cframe = 56,
			.datastack_chunk = 296, .base_frame = PYTHON_NONE,
			.holds_gil = PYTHON_NONE
		},
		.cframe_current = 8,
		.frame = {
			.size = 72, .back = 48, .code = 32, .lasti = 56,
			.executing = PYTHON_NONE, .owner = 69, .is_entry = 68,
			.tlbc_index = PYTHON_NONE, .locals = 72, .stackpointer = PYTHON_NONE
		},
		.code = {
			.size = 144, .filename = 112, .name = 120, .qualname = 128,
			.linetable = 136, .firstlineno = 72, .argcount = 56,
			.kwonlyargcount = 64, .flags = 48, .nlocals = PYTHON_NONE,
			.varnames = PYTHON_NONE, .localsplusnames = 96, .localspluskinds = 104,
			.instructions = 184, .tlbc = PYTHON_NONE
		},
		.object = {
			.object_size = 16, .type = 8, .var_size = 16, .type_name = 24,
			.type_flags = 168, .type_dictoffset = 288, .type_basicsize = 32,
			.bytes_data = 32, .tuple_items = 24, .list_items = 24,
			.float_value = 16, .long_tag = 16, .long_digits = 24
		},
		.text = {
			.length = 16, .state = 32, .ascii_data = 48, .compact_data = 72,
			.data = 72, .kind_shift = 2, .compact_bit = 5, .ascii_bit = 6
		},
		.dict = {
			.used = 16, .keys = 32, .values = 40, .cached_keys = 872
		},
	},
	{
		.minor = 12,
		.lines = PYTHON_LOCATIONS,
		.runtime = {
			.interpreters_head = 40, .tstate_current = PYTHON_NONE,
			.gil_locked = PYTHON_NONE, .gil_last_holder = PYTHON_NONE,
			.gc_collecting = PYTHON_NONE
		},
		.interp = {
			.next = 0, .id = 8, .threads_head = 72, .modules = 944,
			.gc_collecting = 312, .gil = 384, .code_generation = PYTHON_NONE
		},
		.gil = {
			.locked = 16, .last_holder = 8
		},
		.tstate = {
			.size = 240, .prev = 0, .next = 8, .interp = 16, .thread_id = 136,
			.native_thread_id = 144, .frame = PYTHON_NONE, .cframe = 56,
			.datastack_chunk = 232, .base_frame = PYTHON_NONE,
			.holds_gil = PYTHON_NONE
		},
		.cframe_current = 0,
		.frame = {
			.size = 72, .back = 8, .code = 0, .lasti = 56, .executing = PYTHON_NONE,
			.owner = 70, .is_entry = PYTHON_NONE, .tlbc_index = PYTHON_NONE,
			.locals = 72, .stackpointer = PYTHON_NONE
		},
		.code = {
			.size = 144, .filename = 112, .name = 120, .qualname = 128,
			.linetable = 136, .firstlineno = 68, .argcount = 52,
			.kwonlyargcount = 60, .flags = 48, .nlocals = PYTHON_NONE,
			.varnames = PYTHON_NONE, .localsplusnames = 96, .localspluskinds = 104,
			.instructions = 192, .tlbc = PYTHON_NONE
		},
		.object = {
			.object_size = 16, .type = 8, .var_size = 16, .type_name = 24,
			.type_flags = 168, .type_dictoffset = 288, .type_basicsize = 32,
			.bytes_data = 32, .tuple_items = 24, .list_items = 24,
			.float_value = 16, .long_tag = 16, .long_digits = 24
		},
		.text = {
			.length = 16, .state = 32, .ascii_data = 40, .compact_data = 56,
			.data = 56, .kind_shift = 2, .compact_bit = 5, .ascii_bit = 6
		},
		.dict = {
			.used = 16, .keys = 32, .values = 40, .cached_keys = 880
		},
	},
};

const struct python_runtime_exception python_runtime_exceptions[] = {
	{
		.minor = 7,
		.arch = PYTHON_X86_64,
		.before = 0x03070400,
		.runtime = {
			.interpreters_head = 24, .tstate_current = 1392, .gil_locked = 1192,
			.gil_last_holder = 1184, .gc_collecting = 544
		},
	},
	{
		.minor = 7,
		.arch = PYTHON_AARCH64,
		.before = 0x03070400,
		.runtime = {
			.interpreters_head = 24, .tstate_current = 1408, .gil_locked = 1192,
			.gil_last_holder = 1184, .gc_collecting = 544
		},
	},
	{
		.minor = 7,
		.arch = PYTHON_AARCH64,
		.before = UINT32_MAX,
		.runtime = {
			.interpreters_head = 24, .tstate_current = 1496, .gil_locked = 1280,
			.gil_last_holder = 1272, .gc_collecting = 632
		},
	},
	{
		.minor = 8,
		.arch = PYTHON_AARCH64,
		.before = UINT32_MAX,
		.runtime = {
			.interpreters_head = 32, .tstate_current = 1384, .gil_locked = 1168,
			.gil_last_holder = 1160, .gc_collecting = 544
		},
	},
	{
		.minor = 9,
		.arch = PYTHON_AARCH64,
		.before = UINT32_MAX,
		.runtime = {
			.interpreters_head = 32, .tstate_current = 584, .gil_locked = 368,
			.gil_last_holder = 360, .gc_collecting = PYTHON_NONE
		},
	},
	{
		.minor = 10,
		.arch = PYTHON_AARCH64,
		.before = UINT32_MAX,
		.runtime = {
			.interpreters_head = 32, .tstate_current = 584, .gil_locked = 368,
			.gil_last_holder = 360, .gc_collecting = PYTHON_NONE
		},
	},
	{
		.minor = 11,
		.arch = PYTHON_AARCH64,
		.before = UINT32_MAX,
		.runtime = {
			.interpreters_head = 40, .tstate_current = 592, .gil_locked = 376,
			.gil_last_holder = 368, .gc_collecting = PYTHON_NONE
		},
	},
	{ .minor = 0 },
};
/* clang-format on */
