/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/python/layout.h"

#include <errno.h>

#include "test.h"

/* What interpreters say of themselves; run from the top of the source tree. */
#define SAID "tests/fuzz/corpus/python_offsets/"

static size_t read_said(const char *version, uint64_t *words, size_t max)
{
	char path[128];

	snprintf(path, sizeof(path), SAID "%s", version);
	FILE *f = fopen(path, "rb");
	CHECK(f);
	size_t n = fread(words, 8, max, f);
	fclose(f);
	return n;
}

TEST(python_layout, knows_3_7_to_3_12)
{
	struct python_layout l;

	for (uint32_t minor = 0; minor < 256; minor++) {
		int want = minor >= 7 && minor <= 12 ? 0 : -ENOENT;

		CHECK_INT(python_layout_table(0x030005f0 | minor << 16, PYTHON_X86_64, &l), want);
		CHECK_INT(python_layout_table(0x020005f0 | minor << 16, PYTHON_X86_64, &l),
			  -ENOENT);
	}
}

TEST(python_layout, rows_are_consistent)
{
	struct python_layout l;

	for (uint32_t minor = 7; minor <= 12; minor++) {
		uint32_t version = 0x030001f0 | minor << 16;

		CHECK_INT(python_layout_table(version, PYTHON_X86_64, &l), 0);
		CHECK_INT(l.version, version);
		CHECK_INT(l.minor, minor);
		CHECK(!l.free_threaded && l.tagged == 0);
		CHECK_INT(l.lines, minor < 10	? PYTHON_LNOTAB
				   : minor < 11 ? PYTHON_LINETABLE
						: PYTHON_LOCATIONS);
		CHECK(l.tstate.size <= PYTHON_TSTATE_MAX && l.tstate.thread_id < l.tstate.size);
		CHECK(l.frame.size <= PYTHON_FRAME_MAX && l.frame.lasti < l.frame.size);
		CHECK(l.code.size <= PYTHON_CODE_MAX && l.code.linetable < l.code.size);
		CHECK((l.tstate.frame != PYTHON_NONE) != (l.tstate.cframe != PYTHON_NONE));
		CHECK((l.code.qualname != PYTHON_NONE) == (minor >= 11));
		CHECK((l.tstate.native_thread_id != PYTHON_NONE) == (minor >= 11));
		CHECK((l.frame.owner != PYTHON_NONE) == (minor >= 11));
		CHECK((l.interp.gil != PYTHON_NONE) == (minor >= 12));
		CHECK((l.runtime.gil_locked != PYTHON_NONE) == (minor < 12));
		/* Exactly one of the two is there. */
		CHECK((l.runtime.gc_collecting != PYTHON_NONE) !=
		      (l.interp.gc_collecting != PYTHON_NONE));
	}
}

TEST(python_layout, mutexes_are_bigger_on_aarch64)
{
	static const uint32_t current[] = {1496, 1384, 584, 584, 592};
	struct python_layout x86, arm;

	for (uint32_t i = 0; i < 5; i++) {
		uint32_t version = 0x030705f0 + (i << 16);

		CHECK_INT(python_layout_table(version, PYTHON_X86_64, &x86), 0);
		CHECK_INT(python_layout_table(version, PYTHON_AARCH64, &arm), 0);
		CHECK_INT(arm.runtime.tstate_current, current[i]);
		CHECK_INT(x86.runtime.tstate_current, current[i] - 16);
		arm.runtime.tstate_current -= 16;
		CHECK(!memcmp(&arm, &x86, sizeof(arm)));
	}
	CHECK_INT(python_layout_table(0x030c01f0, PYTHON_X86_64, &x86), 0);
	CHECK_INT(python_layout_table(0x030c01f0, PYTHON_AARCH64, &arm), 0);
	CHECK(!memcmp(&arm, &x86, sizeof(arm)));
}

TEST(python_layout, before_3_7_4_the_collector_was_smaller)
{
	struct python_layout old, new;

	CHECK_INT(python_layout_table(0x030703f0, PYTHON_X86_64, &old), 0);
	CHECK_INT(python_layout_table(0x030704f0, PYTHON_X86_64, &new), 0);
	CHECK_INT(old.runtime.tstate_current, 1392);
	CHECK_INT(new.runtime.tstate_current, 1480);
	CHECK_INT(new.runtime.gc_collecting - old.runtime.gc_collecting, 88);
	CHECK_INT(new.runtime.gil_locked - old.runtime.gil_locked, 88);
	CHECK_INT(old.runtime.interpreters_head, new.runtime.interpreters_head);
	CHECK_INT(python_layout_table(0x030703f0, PYTHON_AARCH64, &old), 0);
	CHECK_INT(old.runtime.tstate_current, 1408);
}

TEST(python_layout, reads_3_13)
{
	uint64_t words[256];
	struct python_layout l;
	size_t n = read_said("3.13", words, 256);

	CHECK_INT(python_layout_read(words, n * 8, &l), 0);
	CHECK_INT(l.minor, 13);
	CHECK(!l.free_threaded && l.tagged == 0 && l.lines == PYTHON_LOCATIONS);
	CHECK_INT(l.runtime.interpreters_head, 632);
	CHECK_INT(l.interp.threads_head, 7344);
	CHECK_INT(l.interp.gc_collecting, 7600);
	CHECK_INT(l.interp.code_generation, PYTHON_NONE);
	CHECK_INT(l.gil.locked, 16);
	CHECK_INT(l.gil.last_holder, 8);
	CHECK_INT(l.tstate.frame, 72);
	CHECK_INT(l.tstate.size, 240);
	CHECK_INT(l.frame.owner, 70);
	CHECK_INT(l.frame.size, 72);
	CHECK_INT(l.frame.locals, 72);
	CHECK_INT(l.code.flags, 48);
	CHECK_INT(l.code.kwonlyargcount, 60);
	CHECK_INT(l.code.size, 144);
	CHECK_INT(l.code.instructions, 200);
	CHECK_INT(l.object.type_dictoffset, 288);
	CHECK_INT(l.text.compact_data, 56);
	CHECK_INT(l.dict.cached_keys, 880);
	CHECK_INT(l.dict.used, 16);
}

TEST(python_layout, reads_3_14_and_3_15)
{
	uint64_t words[256];
	struct python_layout l;

	CHECK_INT(python_layout_read(words, read_said("3.14", words, 256) * 8, &l), 0);
	CHECK_INT(l.tagged, 3);
	CHECK_INT(l.interp.code_generation, 7992);
	CHECK_INT(l.frame.owner, 74);
	CHECK_INT(l.frame.stackpointer, 64);
	CHECK_INT(l.frame.tlbc_index, PYTHON_NONE);
	CHECK_INT(l.code.instructions, 208);
	CHECK_INT(l.object.tuple_items, 32);
	CHECK_INT(l.tstate.base_frame, PYTHON_NONE);

	CHECK_INT(python_layout_read(words, read_said("3.15", words, 256) * 8, &l), 0);
	CHECK_INT(l.tstate.base_frame, 80);
	CHECK_INT(l.tstate.holds_gil, 36);
	CHECK_INT(l.tstate.thread_id, 176);
	CHECK_INT(l.object.type_basicsize, 32);
	CHECK_INT(l.dict.cached_keys, 888);
	CHECK_INT(l.text.data, 56);
}

TEST(python_layout, reads_free_threaded_builds)
{
	uint64_t words[256];
	struct python_layout l;

	CHECK_INT(python_layout_read(words, read_said("3.13t", words, 256) * 8, &l), 0);
	CHECK(l.free_threaded);
	CHECK_INT(l.object.object_size, 32);
	CHECK_INT(l.text.ascii_data, 56);
	CHECK_INT(l.text.kind_shift, 2); /* as without */
	CHECK_INT(l.frame.tlbc_index, PYTHON_NONE);
	CHECK_INT(l.dict.cached_keys, 896);
	CHECK_INT(l.object.type_dictoffset, 304);

	CHECK_INT(python_layout_read(words, read_said("3.14t", words, 256) * 8, &l), 0);
	CHECK_INT(l.text.kind_shift, 8);
	CHECK_INT(l.text.compact_bit, 11);
	CHECK_INT(l.text.ascii_bit, 12);
	CHECK_INT(l.frame.tlbc_index, 72);
	CHECK_INT(l.code.tlbc, 224);
	CHECK_INT(l.code.size, 232);
	CHECK_INT(l.gil.locked, 24);

	CHECK_INT(python_layout_read(words, read_said("3.15t", words, 256) * 8, &l), 0);
	CHECK_INT(l.text.kind_shift, 8);
	CHECK_INT(l.dict.cached_keys, 904);
}

TEST(python_layout, says_what_is_wrong)
{
	uint64_t words[256];
	struct python_layout l = {.minor = 99};
	size_t n = read_said("3.14", words, 256);

	CHECK_INT(python_layout_read("xdebugp", 7, &l), -ENOENT);
	CHECK_INT(python_layout_read("xdebugpz", 8, &l), -ENOENT);
	CHECK_INT(python_layout_read(words, 16, &l), -EPROTO);
	CHECK_INT(python_layout_read(words, 8 * 50, &l), -EPROTO);
	words[1] = 0x031000f0;
	CHECK_INT(python_layout_read(words, n * 8, &l), -ENOTSUP);
	words[1] = 0x030c00f0;
	CHECK_INT(python_layout_read(words, n * 8, &l), -EPROTO);
	words[1] = 0x040e00f0;
	CHECK_INT(python_layout_read(words, n * 8, &l), -EPROTO);
	words[1] = 0x030e00f0;
	words[2] = 2;
	CHECK_INT(python_layout_read(words, n * 8, &l), -EPROTO);
	CHECK_INT(l.minor, 99); /* untouched */
}

/* Of a layout that was accepted, whatever it was made of. */
static void check_sane(const struct python_layout *l)
{
	CHECK(l->tstate.size <= PYTHON_TSTATE_MAX && l->frame.size <= PYTHON_FRAME_MAX &&
	      l->code.size <= PYTHON_CODE_MAX);
	CHECK(l->tstate.next + 8 <= l->tstate.size && l->tstate.frame + 8 <= l->tstate.size);
	CHECK(l->tstate.datastack_chunk + 8 <= l->tstate.size);
	CHECK(l->frame.back + 8 <= l->frame.size && l->frame.owner + 1 <= l->frame.size);
	CHECK(l->code.filename + 8 <= l->code.size && l->code.firstlineno + 4 <= l->code.size);
	CHECK(l->tstate.interp % 8 == 0 && l->frame.lasti % 8 == 0 && l->code.qualname % 8 == 0);
	CHECK(l->interp.threads_head < 16 << 20 && l->interp.gc_collecting < 16 << 20);
	CHECK(l->text.ascii_data <= 4096 && l->text.compact_data <= 4096);
}

TEST(python_layout, believes_no_single_wrong_number)
{
	static const char *const versions[] = {"3.13", "3.13t", "3.14", "3.14t", "3.15", "3.15t"};
	static const uint64_t wrong[] = {
		0, 1, 3, 7, 0x1000, 0x10000, 1 << 24, UINT32_MAX, 1ull << 40, UINT64_MAX, -8ull};

	for (unsigned v = 0; v < 6; v++) {
		uint64_t words[256];
		struct python_layout l;
		size_t n = read_said(versions[v], words, 256);

		for (size_t i = 3; i < n; i++)
			for (unsigned w = 0; w < sizeof(wrong) / sizeof(wrong[0]); w++) {
				uint64_t was = words[i];

				words[i] = wrong[w];
				if (python_layout_read(words, n * 8, &l) == 0)
					check_sane(&l);
				words[i] = was;
			}
		for (size_t bytes = 0; bytes < n * 8; bytes += 4) {
			char *copy = malloc(bytes + 1); /* a sanitizer sees a step outside */

			CHECK(copy);
			memcpy(copy, words, bytes);
			python_layout_read(copy, bytes, &l);
			free(copy);
		}
	}
}
