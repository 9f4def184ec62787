/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include "analyze/summary.h"

#include <jansson.h>

#include "wire/record.h"

#define T0 1767225600000000000u
#define MS 1000000u
#define KIB 1024u
#define MIB (1024u * 1024u)

#define LEAK_STACK                                                                                 \
	"/opt/lib/libleaks_ascend_hal_hook.so(hook_halMemAlloc+0x41) [0x7f01]\n"                   \
	"/opt/lib/libascendcl.so(aclrtMalloc+0x12) [0x7f02]\n"                                     \
	"/home/me/train(leak_one_buffer+0x20) [0x55aa] /home/me/src/train.c:120\n"                 \
	"/home/me/train(train_step+0x33) [0x55ab]\n"                                               \
	"/home/me/train(main+0x33) [0x55ac]\n"                                                     \
	"/lib/x86_64-linux-gnu/libc.so.6(__libc_start_main+0x85) [0x7f03]\n"
#define OTHER_STACK "/home/me/train(make_model+0x10) [0x55ad]\n"
#define PY_STACK                                                                                   \
	"/usr/lib/python3/dist-packages/torch/nn/module.py(50): __call__\n"                        \
	"/home/me/train.py(17): forward\n/home/me/train.py(90): main\n"

/* A block as the rows of a test name it. */
struct blk {
	uint32_t pid;
	uint32_t device;
	enum row_type type;
	uint64_t id;
	uint64_t bytes;
	const char *c_stack;
	const char *py_stack;
};

static struct row base_row(enum row_event event, enum row_type type, uint32_t pid, uint64_t ms)
{
	return (struct row){
		.event = event, .type = type, .pid = pid, .tid = pid, .time_ns = T0 + ms * MS};
}

static void add(struct summary *s, enum row_event event, uint64_t ms, struct blk b, bool shadow)
{
	struct row r = base_row(event, b.type, b.pid, ms);

	r.device = b.device;
	r.has_ptr = true;
	r.ptr = 0x1000 * b.id;
	row_attr_number(&r, ATTR_ALLOCATION_ID, b.id);
	row_attr_number(&r, ATTR_ADDR, r.ptr);
	row_attr_number(&r, ATTR_SIZE, b.bytes);
	if (shadow)
		row_attr_text(&r, ATTR_SHADOW, "true", 4);
	r.c_stack = b.c_stack;
	r.c_stack_len = b.c_stack ? strlen(b.c_stack) : 0;
	r.py_stack = b.py_stack;
	r.py_stack_len = b.py_stack ? strlen(b.py_stack) : 0;
	summary_add(s, &r);
}

static void take(struct summary *s, uint64_t ms, struct blk b)
{
	add(s, ROW_MALLOC, ms, b, false);
}

static void give(struct summary *s, uint64_t ms, struct blk b)
{
	b.c_stack = b.py_stack = NULL;
	add(s, ROW_FREE, ms, b, false);
}

static void end(struct summary *s, uint64_t ms, struct blk b)
{
	b.c_stack = b.py_stack = NULL;
	add(s, ROW_FREE, ms, b, true);
}

static void event(struct summary *s, enum row_event ev, enum row_type type, const char *name)
{
	struct row r = base_row(ev, type, 10, 5);

	r.name = name;
	r.name_len = name ? strlen(name) : 0;
	summary_add(s, &r);
}

static struct blk hal(uint64_t id, uint64_t bytes)
{
	return (struct blk){10, 0, TYPE_HAL, id, bytes, NULL, NULL};
}

static struct blk pta(uint64_t id, uint64_t bytes, const char *c_stack)
{
	return (struct blk){10, 0, TYPE_PTA, id, bytes, c_stack, NULL};
}

/* The text and the JSON of a summary; both live until the test ends. */
static const char *text_of(struct summary *s)
{
	static struct buf b;

	buf_clear(&b);
	summary_text(s, 10, false, &b);
	return buf_str(&b);
}

/* The first paragraph in one line. */
static const char *answer_of(struct summary *s)
{
	static char line[4096];
	const char *text = text_of(s);
	size_t len = (size_t)(strstr(text, "\n\n") - text);

	CHECK(len < sizeof(line));
	for (size_t i = 0; i < len; i++)
		line[i] = text[i] == '\n' ? ' ' : text[i];
	line[len] = '\0';
	return line;
}

static json_t *json_of(struct summary *s, unsigned top)
{
	struct buf b = {0};

	CHECK_INT(summary_json(s, top, &b), 0);
	json_t *o = json_loadb(b.data, b.len, 0, NULL);
	CHECK(o);
	buf_release(&b);
	return o;
}

/* The value at a path of keys and indexes: "processes.0.pid". */
static json_t *at(json_t *o, const char *path)
{
	char copy[128], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *k = strtok_r(copy, ".", &save); k; k = strtok_r(NULL, ".", &save)) {
		o = json_is_array(o) ? json_array_get(o, (size_t)atoi(k)) : json_object_get(o, k);
		if (!o) {
			fprintf(stderr, "no '%s' of '%s'\n", k, path);
			exit(1);
		}
	}
	return o;
}

#define NUM(o, path) json_integer_value(at(o, path))
#define STR(o, path) json_string_value(at(o, path))
#define POOL "processes.0.pools.0."

#define CHECK_HAS(text, part)                                                                      \
	do {                                                                                       \
		if (!strstr(text, part)) {                                                         \
			fprintf(stderr, "%s:%d: no \"%s\" in:\n%s\n", __FILE__, __LINE__, part,    \
				text);                                                             \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define CHECK_LACKS(text, part) CHECK(!strstr(text, part))

TEST(summary, of_nothing)
{
	struct summary *s = summary_new();

	CHECK_STR(text_of(s), "There are no events in this recording.\n\nNo events were lost.\n");
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, "rows"), 0);
	CHECK_INT(NUM(o, "first_time_ns"), 0);
	CHECK_INT(NUM(o, "duration_ns"), 0);
	CHECK_INT(json_array_size(at(o, "devices")), 0);
	json_decref(o);
	summary_free(s);
	summary_free(NULL);
}

TEST(summary, counts_and_peak_of_a_pool)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, MIB));
	take(s, 10, hal(2, 2 * MIB));
	give(s, 20, hal(1, MIB));
	take(s, 30, hal(3, MIB)); /* as high as before: the peak is the first time */
	give(s, 40, hal(2, 0));
	give(s, 3200, hal(3, 0));
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "mallocs"), 3);
	CHECK_INT(NUM(o, POOL "frees"), 3);
	CHECK_INT(NUM(o, POOL "events"), 6);
	CHECK_INT(NUM(o, POOL "peak_bytes"), 3 * MIB);
	CHECK_INT(NUM(o, POOL "peak_blocks"), 2);
	CHECK_INT(NUM(o, POOL "peak_time_ns"), T0 + 10 * MS);
	CHECK_INT(NUM(o, POOL "peak_after_ns"), 10 * MS);
	CHECK_INT(NUM(o, POOL "alive_at_end.blocks"), 0);
	CHECK_INT(NUM(o, "duration_ns"), 3200 * (long long)MS);
	CHECK_STR(STR(o, POOL "pool"), "HAL");
	CHECK_STR(STR(o, POOL "device"), "0");
	CHECK(json_is_true(at(o, "time_ordered")));
	json_decref(o);
	CHECK_STR(answer_of(s), "1 process made 6 memory events in 3.2 s. Device 0 peaked at 3.00 "
				"MiB 10.0 ms after the start. Everything that was allocated was "
				"freed again.");
	const char *t = text_of(s);
	CHECK_HAS(t, "No events were lost.\n");
	CHECK_LACKS(t, "Still allocated");
	CHECK_LACKS(t, "\033");
	summary_free(s);
}

TEST(summary, names_what_was_alive_at_the_end_and_from_where)
{
	struct summary *s = summary_new();

	summary_process(s, 10, "./train --steps 3");
	take(s, 0, hal(1, 8 * MIB));
	take(s, 1, pta(2, 100 * KIB, OTHER_STACK));
	for (uint64_t i = 0; i < 3; i++)
		take(s, 2 + i, pta(3 + i, 256 * KIB, LEAK_STACK));
	take(s, 9, pta(9, MIB, LEAK_STACK));
	give(s, 10, pta(9, MIB, NULL));
	for (uint64_t i = 0; i < 4; i++)
		end(s, 20, pta(2 + i, 0, NULL));
	end(s, 20, hal(1, 0));
	CHECK_STR(
		answer_of(s),
		"1 process made 7 memory events in 20.0 ms. Device 0 peaked at 8.00 MiB (PTA pool "
		"1.85 MiB) at the start. 4 blocks (868.00 KiB) of PTA and 1 block (8.00 MiB) of "
		"HAL were still allocated at the end of process 10, most of the PTA memory from "
		"leak_one_buffer (train.c:120).");
	const char *t = text_of(s);
	CHECK_HAS(t, "Process  Device  Pool  Allocs  Frees      Peak  Peak at  Blocks left  Bytes "
		     "left\n"
		     "10       0       HAL        1      0  8.00 MiB      0 s            1    8.00 "
		     "MiB\n"
		     "10       0       PTA        5      1  1.85 MiB   9.0 ms            4  868.00 "
		     "KiB\n");
	CHECK_HAS(t, "Process 10: ./train --steps 3\n");
	CHECK_HAS(t, "Still allocated at the end\n"
		     "  Process 10, device 0, HAL: 8.00 MiB in 1 block\n"
		     "    8.00 MiB in 1 block, no call stack recorded\n"
		     "  Process 10, device 0, PTA: 868.00 KiB in 4 blocks\n"
		     "    768.00 KiB in 3 blocks\n"
		     "        leak_one_buffer (train.c:120)\n"
		     "        train_step (train)\n"
		     "        main (train)\n"
		     "    100.00 KiB in 1 block\n"
		     "        make_model (train)\n");
	CHECK_HAS(t, "Held at the highest peak\n"
		     "  Process 10, device 0, PTA: 1.85 MiB in 5 blocks, 9.0 ms after the start\n"
		     "    1.75 MiB in 4 blocks\n");
	json_t *o = json_of(s, 1);
	CHECK_INT(NUM(o, "processes.0.pools.1.frees"), 1);
	CHECK_INT(NUM(o, "processes.0.pools.1.synthetic_frees"), 4);
	CHECK_INT(NUM(o, "processes.0.pools.1.alive_at_end.bytes"), 868 * KIB);
	CHECK_INT(NUM(o, "processes.0.pools.1.alive_at_end.places_total"), 2);
	CHECK_INT(json_array_size(at(o, "processes.0.pools.1.alive_at_end.places")), 1);
	CHECK_STR(STR(o, "processes.0.pools.1.alive_at_end.places.0.where"),
		  "leak_one_buffer (train.c:120)");
	CHECK_INT(json_array_size(at(o, "processes.0.pools.1.alive_at_end.places.0.c_stack")), 6);
	CHECK_STR(STR(o, "processes.0.command"), "./train --steps 3");
	CHECK_STR(STR(o, "devices.0.peak_source"), "driver");
	CHECK_INT(NUM(o, "counts.frees"), 1);
	CHECK_INT(NUM(o, "counts.synthetic_frees"), 5);
	json_decref(o);
	summary_free(s);
}

TEST(summary, blocks_without_any_free_are_alive)
{
	struct summary *s = summary_new();

	take(s, 0, pta(1, 100, OTHER_STACK));
	take(s, 1, pta(2, 200, OTHER_STACK));
	give(s, 2, pta(1, 100, NULL));
	CHECK_HAS(answer_of(s), "1 block (200 B) of PTA was still allocated at the end of process "
				"10, all of it from make_model (train).");
	summary_free(s);
}

/* Whatever the order of growth and shrinking, alive_at_peak is the state of the highest moment. */
TEST(summary, what_was_held_at_the_peak)
{
	static const char *const stacks[] = {"a", "b", "c"};
	uint64_t now[3] = {0}, best[3] = {0}, sum = 0, top = 0, id = 0, seed = 12345;
	uint64_t ids[600], sizes[600], owner[600];
	size_t n = 0;
	struct summary *s = summary_new();

	for (int i = 0; i < 20000; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		uint64_t r = seed >> 33;
		if (n < 600 && (r & 1 || !n)) {
			ids[n] = ++id;
			sizes[n] = 1 + r % 1000;
			owner[n] = r / 1000 % 3;
			take(s, (uint64_t)i, pta(id, sizes[n], stacks[owner[n]]));
			now[owner[n]] += sizes[n];
			sum += sizes[n++];
		} else {
			size_t k = r % n--;
			give(s, (uint64_t)i, pta(ids[k], 0, NULL));
			now[owner[k]] -= sizes[k];
			sum -= sizes[k];
			ids[k] = ids[n];
			sizes[k] = sizes[n];
			owner[k] = owner[n];
		}
		if (sum > top) {
			top = sum;
			memcpy(best, now, sizeof(best));
		}
	}
	json_t *o = json_of(s, 10), *places = at(o, POOL "alive_at_peak.places");
	CHECK_INT(NUM(o, POOL "peak_bytes"), top);
	CHECK_INT(NUM(o, POOL "alive_at_peak.bytes"), top);
	CHECK_INT(NUM(o, POOL "alive_at_end.bytes"), sum);
	CHECK_INT(json_array_size(places), 3);
	for (size_t i = 0; i < 3; i++) {
		json_t *p = json_array_get(places, i);
		CHECK_INT(NUM(p, "bytes"), best[STR(p, "c_stack.0")[0] - 'a']);
	}
	json_decref(o);
	summary_free(s);
}

TEST(summary, a_made_up_free_in_the_middle_is_a_free)
{
	struct summary *s = summary_new();

	take(s, 0, pta(1, 100, NULL));
	end(s, 10, pta(1, 100, NULL)); /* the address was handed out anew */
	take(s, 10, pta(2, 100, NULL));
	give(s, 20, pta(2, 100, NULL));
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "frees"), 2);
	CHECK_INT(NUM(o, POOL "synthetic_frees"), 0);
	CHECK_INT(NUM(o, POOL "alive_at_end.blocks"), 0);
	CHECK_INT(NUM(o, POOL "peak_bytes"), 100);
	json_decref(o);
	summary_free(s);
}

TEST(summary, frees_between_two_windows_are_frees)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, 100));
	take(s, 1, hal(2, 100));
	end(s, 10, hal(1, 0)); /* freed while nobody recorded, told when recording began again */
	struct row r = base_row(ROW_SYSTEM, TYPE_START_TRACE, 10, 10);
	r.device = DEV_NONE;
	summary_add(s, &r);
	end(s, 50, hal(2, 0));
	event(s, ROW_SYSTEM, TYPE_ACL_FINI, NULL);
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "frees"), 1);
	CHECK_INT(NUM(o, POOL "synthetic_frees"), 1);
	CHECK_INT(NUM(o, POOL "alive_at_end.blocks"), 1);
	json_decref(o);
	summary_free(s);
}

TEST(summary, a_real_free_beats_a_made_up_one)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, 100));
	take(s, 0, hal(2, 100));
	end(s, 10, hal(1, 0));
	end(s, 10, hal(1, 0));
	end(s, 10, hal(2, 0));
	give(s, 10, hal(1, 0));
	end(s, 10, hal(7, 0)); /* of a block nobody knows: nothing to say */
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "frees"), 1);
	CHECK_INT(NUM(o, POOL "synthetic_frees"), 1);
	CHECK_INT(NUM(o, POOL "alive_at_end.blocks"), 1);
	json_decref(o);
	take(s, 20, hal(8, 100)); /* and the pool goes on */
	o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "frees"), 2);
	CHECK_INT(NUM(o, POOL "alive_at_end.blocks"), 1);
	json_decref(o);
	summary_free(s);
}

TEST(summary, frees_of_blocks_from_before_are_told)
{
	struct summary *s = summary_new();

	give(s, 0, hal(5, 100));
	give(s, 1, hal(6, 100));
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "unmatched_frees"), 2);
	CHECK_INT(NUM(o, POOL "peak_bytes"), 0);
	json_decref(o);
	CHECK_HAS(text_of(s), "2 frees were of blocks whose allocation was not recorded.\n");
	summary_free(s);
}

TEST(summary, frees_that_were_not_recorded_are_told)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, 100));
	CHECK_HAS(text_of(s), "Not one free was recorded");
	json_t *o = json_of(s, 10);
	CHECK(json_is_false(at(o, "processes.0.frees_recorded")));
	json_decref(o);
	end(s, 1, hal(1, 100));
	CHECK_LACKS(text_of(s), "Not one free was recorded");
	summary_free(s);
}

TEST(summary, the_same_pid_twice_is_two_processes)
{
	struct summary *s = summary_new();

	summary_process(s, 10, "first");
	take(s, 0, hal(1, 100));
	end(s, 1, hal(1, 100));
	summary_process(s, 10, "second");
	take(s, 2, hal(1, 300));
	give(s, 3, hal(1, 300));
	json_t *o = json_of(s, 10);
	CHECK_INT(json_array_size(at(o, "processes")), 2);
	CHECK_STR(STR(o, "processes.0.command"), "first");
	CHECK_INT(NUM(o, "processes.0.pools.0.alive_at_end.bytes"), 100);
	CHECK_STR(STR(o, "processes.1.command"), "second");
	CHECK_INT(NUM(o, "processes.1.pools.0.alive_at_end.bytes"), 0);
	CHECK_INT(NUM(o, "devices.0.peak_bytes"), 300);
	json_decref(o);
	summary_free(s);
}

/* A dump does not announce processes: an id that is handed out again gives it away. */
TEST(summary, the_same_pid_twice_in_a_dump)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, 100));
	end(s, 1, hal(1, 100));
	take(s, 2, hal(1, 300));
	json_t *o = json_of(s, 10);
	CHECK_INT(json_array_size(at(o, "processes")), 2);
	CHECK_INT(NUM(o, "processes.0.rows"), 2);
	CHECK_INT(NUM(o, "processes.0.pools.0.alive_at_end.bytes"), 100);
	CHECK_INT(NUM(o, "processes.1.rows"), 1);
	CHECK_INT(NUM(o, "processes.1.pools.0.alive_at_end.bytes"), 300);
	json_decref(o);
	summary_free(s);
}

TEST(summary, a_device_is_the_sum_of_its_processes)
{
	struct summary *s = summary_new();
	struct blk a = hal(1, 100), b = hal(1, 50);

	b.pid = 11;
	take(s, 0, a);
	take(s, 1, b);
	give(s, 2, a);
	give(s, 3, b);
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, "devices.0.peak_bytes"), 150);
	CHECK_INT(NUM(o, "devices.0.peak_after_ns"), MS);
	CHECK(json_is_false(at(o, "devices.0.peak_is_lower_bound")));
	json_decref(o);
	CHECK_HAS(answer_of(s), "2 processes made 4 memory events");
	summary_free(s);
}

TEST(summary, processes_one_after_the_other_give_a_lower_bound)
{
	struct summary *s = summary_new();
	struct blk a = hal(1, 100), b = hal(1, 150);

	b.pid = 11;
	take(s, 0, a);
	take(s, 1, b);
	take(s, 0, (struct blk){12, 0, TYPE_HAL, 1, 70, NULL, NULL});
	json_t *o = json_of(s, 10);
	CHECK(json_is_true(at(o, "time_ordered")));
	CHECK_INT(NUM(o, "devices.0.peak_bytes"), 150);
	CHECK(json_is_true(at(o, "devices.0.peak_is_lower_bound")));
	json_decref(o);
	CHECK_HAS(answer_of(s), "Device 0 peaked at no less than 150 B");
	summary_free(s);
}

TEST(summary, a_process_that_goes_back_in_time_is_told)
{
	struct summary *s = summary_new();

	take(s, 10, hal(1, 100));
	take(s, 5, hal(2, 100));
	json_t *o = json_of(s, 10);
	CHECK(json_is_false(at(o, "time_ordered")));
	CHECK_INT(NUM(o, "first_time_ns"), T0 + 5 * MS);
	json_decref(o);
	CHECK_HAS(text_of(s), "not in the order of time");
	summary_free(s);
}

TEST(summary, host_memory_and_pools_without_a_driver)
{
	struct summary *s = summary_new();
	struct blk host = {10, DEV_HOST, TYPE_HOST, 1, 4096, NULL, PY_STACK};

	take(s, 0, host);
	take(s, 0, (struct blk){10, 1, TYPE_MINDSPORE, 2, 100, NULL, NULL});
	take(s, 1, (struct blk){10, 1, TYPE_ATB, 3, 50, NULL, NULL});
	end(s, 2, host);
	json_t *o = json_of(s, 10);
	CHECK_STR(STR(o, "devices.0.device"), "1");
	CHECK_STR(STR(o, "devices.0.peak_source"), "pools");
	CHECK_INT(NUM(o, "devices.0.peak_bytes"), 150);
	CHECK_STR(STR(o, "devices.1.device"), "cpu");
	CHECK_STR(STR(o, "processes.0.pools.2.alive_at_end.places.0.where"),
		  "forward (train.py:17)");
	json_decref(o);
	const char *t = text_of(s);
	CHECK_HAS(t, "Host memory peaked at 4.00 KiB at the start.");
	CHECK_HAS(t, "        forward (train.py:17)\n        main (train.py:90)\n");
	CHECK_LACKS(t, "module.py");
	summary_free(s);
}

TEST(summary, stacks_of_a_database_and_odd_lines)
{
	struct summary *s = summary_new();
	struct blk b = pta(1, 100, "\"/home/me/train(+0x44) [0x55ad]\n\"");

	b.py_stack = "\"NA\"";
	take(s, 0, b);
	b = pta(2, 90, "who \033knows\n\nwhat");
	take(s, 1, b);
	b = pta(3, 80, "libc.so.6(malloc+0x1) [0x1]");
	take(s, 2, b);
	b = pta(4, 70, "\xff\xfe(x");
	take(s, 3, b);
	const char *t = text_of(s);
	CHECK_HAS(t, "        train(+0x44)\n");
	CHECK_HAS(t, "        who ?knows\n        what\n");
	CHECK_HAS(t, "        malloc (libc.so.6)\n");
	json_t *o = json_of(s, 10);
	CHECK_INT(json_array_size(at(o, POOL "alive_at_end.places.0.python_stack")), 0);
	CHECK_STR(STR(o, POOL "alive_at_end.places.3.c_stack.0"), "\?\?(x");
	json_decref(o);
	summary_free(s);
}

TEST(summary, counts_the_other_events)
{
	struct summary *s = summary_new();

	event(s, ROW_ACCESS, TYPE_READ, "aten.add");
	event(s, ROW_OP_LAUNCH, TYPE_ATEN_START, "aten.add");
	event(s, ROW_OP_LAUNCH, TYPE_ATEN_END, "aten.add");
	event(s, ROW_KERNEL_LAUNCH, TYPE_KERNEL_LAUNCH, "k");
	event(s, ROW_KERNEL_LAUNCH, TYPE_KERNEL_EXECUTE_START, "k");
	event(s, ROW_KERNEL_LAUNCH, TYPE_KERNEL_EXECUTE_END, "k");
	event(s, ROW_MSTX, TYPE_MARK, "m");
	event(s, ROW_MSTX, TYPE_RANGE_START, "step start");
	event(s, ROW_MSTX, TYPE_RANGE_START, "\"step start\"");
	event(s, ROW_MSTX, TYPE_RANGE_START, "step starter");
	event(s, ROW_MSTX, TYPE_RANGE_END, NULL);
	event(s, ROW_SYSTEM, TYPE_STEP, "3");
	event(s, ROW_SNAPSHOT, TYPE_SNAPSHOT, "x");
	event(s, ROW_EVENT_END, TYPE_END, NULL);
	struct row nobody = base_row(ROW_KERNEL_LAUNCH, TYPE_KERNEL_LAUNCH, UINT32_MAX, 6);
	summary_add(s, &nobody);
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, "rows"), 15);
	CHECK_INT(json_array_size(at(o, "processes")), 1);
	CHECK_INT(NUM(o, "processes.0.counts.kernel_launches"), 1);
	json_decref(o);
	const char *t = text_of(s);
	CHECK_HAS(t, "1 process made no memory events in 1.0 ms.\n");
	CHECK_HAS(t, "Also recorded: 1 operator launch, 2 kernel launches, 1 access, 3 steps, 1 ");
	CHECK_HAS(t, "3 ranges, 1");
	summary_free(s);
}

TEST(summary, says_when_memory_ran_out)
{
	struct summary *s = summary_new();
	struct row r = base_row(ROW_OOM_DETAIL, TYPE_OOM_TRIGGER, 10, 1200);

	take(s, 0, hal(1, MIB));
	row_attr_text(&r, ATTR_FUNC, "halMemAlloc", 11);
	row_attr_number(&r, ATTR_REQ_SIZE, 64ull << 30);
	summary_add(s, &r);
	event(s, ROW_OOM_DETAIL, TYPE_OOM_TOP_ALLOC, NULL);
	CHECK_HAS(answer_of(s), "Memory ran out once, 1.2 s after the start, when 64.00 GiB were "
				"asked of device 0.");
	const char *t = text_of(s);
	CHECK_HAS(t, "Out of memory\n  1.2 s after the start: process 10 asked device 0 for 64.00 "
		     "GiB (halMemAlloc)\n");
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, "counts.ooms"), 1);
	CHECK_INT(NUM(o, "ooms.0.requested_bytes"), 64ll << 30);
	CHECK_STR(STR(o, "ooms.0.function"), "halMemAlloc");
	json_decref(o);
	for (int i = 0; i < 100; i++)
		summary_add(s, &r);
	o = json_of(s, 10);
	CHECK_INT(NUM(o, "counts.ooms"), 101);
	CHECK_INT(json_array_size(at(o, "ooms")), 16);
	json_decref(o);
	summary_free(s);
}

TEST(summary, always_says_what_was_lost)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, 100));
	summary_lost(s, 10, 0, 0, 0);
	CHECK_HAS(text_of(s), "\nNo events were lost.\n");
	summary_lost(s, 10, 0, 2, 0);
	CHECK_HAS(text_of(s), "\nNo events were lost. 2 call stacks were lost.\n");
	summary_lost(s, 10, 12345, 0, 0);
	summary_lost(s, 11, 1, 0, 2048);
	summary_note(s, "The recording was cut off.");
	CHECK_HAS(answer_of(s), "12,346 events were lost, so all of this is incomplete.");
	const char *t = text_of(s);
	CHECK_HAS(t, "The recording was cut off.\n");
	CHECK_HAS(t, "\n12,346 events were lost. 2 call stacks were lost.\n"
		     "  process 10: 12,345 events, 2 call stacks\n"
		     "  process 11: 1 event, 2.00 KiB of damaged records\n");
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, "lost.events"), 12346);
	CHECK_INT(NUM(o, "processes.1.lost.damaged_bytes"), 2048);
	CHECK_STR(STR(o, "notes.0"), "The recording was cut off.");
	json_decref(o);
	summary_free(s);
}

TEST(summary, colour_only_adds_colour)
{
	struct summary *s = summary_new();
	struct buf plain = {0}, colour = {0}, stripped = {0};

	take(s, 0, pta(1, 100, LEAK_STACK));
	end(s, 1, pta(1, 100, NULL));
	summary_text(s, 10, false, &plain);
	summary_text(s, 10, true, &colour);
	const char *p = buf_str(&colour);
	CHECK(strchr(p, '\033'));
	while (*p) {
		if (*p == '\033')
			p = strchr(p, 'm') + 1;
		else
			buf_add_char(&stripped, *p++);
	}
	CHECK_STR(buf_str(&stripped), buf_str(&plain));
	buf_release(&plain);
	buf_release(&colour);
	buf_release(&stripped);
	summary_free(s);
}

TEST(summary, top_limits_the_places)
{
	struct summary *s = summary_new();
	struct buf b = {0};
	char stack[32];

	for (uint64_t i = 1; i <= 20; i++) {
		snprintf(stack, sizeof(stack), "app(f%d+0x1) [0x1]", (int)i);
		take(s, i, pta(i, i * KIB, stack));
	}
	summary_text(s, 2, false, &b);
	const char *t = buf_str(&b);
	CHECK_HAS(t, "    20.00 KiB in 1 block\n        f20 (app)\n"
		     "    19.00 KiB in 1 block\n        f19 (app)\n"
		     "    171.00 KiB in 18 blocks from 18 more places\n");
	buf_clear(&b);
	summary_text(s, 0, false, &b);
	CHECK_LACKS(buf_str(&b), "Still allocated at the end\n");
	buf_release(&b);
	summary_free(s);
}

TEST(summary, many_processes_make_a_short_text)
{
	struct summary *s = summary_new();

	for (uint32_t i = 1; i <= 300; i++) {
		struct blk b = {i, i % 8, TYPE_HAL, 1, i * KIB, NULL, NULL};
		summary_process(s, i, "worker");
		take(s, i, b);
	}
	CHECK_HAS(answer_of(s), "Another 299 processes left blocks behind, too.");
	CHECK_HAS(answer_of(s), "5 more devices are in the table below.");
	const char *t = text_of(s);
	size_t lines = 0;
	for (const char *p = t; *p; p++)
		lines += *p == '\n';
	CHECK(lines < 200);
	CHECK_HAS(t, "and 280 more processes\n");
	CHECK_HAS(t, "These are the 40 pools with the highest peaks, of 300 (JSON has all).\n");
	json_t *o = json_of(s, 10);
	CHECK_INT(json_array_size(at(o, "processes")), 300);
	json_decref(o);
	summary_free(s);
}

/* Rows with missing attributes, ids that return, and extreme numbers only have to be survived. */
TEST(summary, survives_nonsense)
{
	struct summary *s = summary_new();
	uint64_t seed = 99;

	for (int i = 0; i < 200000; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		struct row r = base_row((enum row_event)(seed >> 60),
					(enum row_type)(seed >> 50 & 63), seed >> 40 & 3, 0);
		r.time_ns = seed >> 20 & 0xff ? (uint64_t)i : seed;
		r.device = seed >> 30 & 1 ? UINT32_MAX : 0;
		if (seed >> 33 & 7)
			row_attr_number(&r, ATTR_ALLOCATION_ID, seed >> 22 & 63);
		row_attr_number(&r, ATTR_SIZE, seed >> 35 & 1 ? UINT64_MAX : seed & 0xfff);
		if (!(seed >> 36 & 3))
			row_attr_text(&r, ATTR_SHADOW, "true", 4);
		if (!(i % 1000))
			summary_process(s, r.pid, NULL);
		summary_add(s, &r);
	}
	CHECK(strlen(text_of(s)) > 100);
	json_decref(json_of(s, 1000));
	summary_free(s);
}
