/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/groups/difference.h"
#include "memory/analysis/groups/groups.h"
#include "memory/analysis/owners/owners.h"
#include "memory/analysis/peak/peak.h"

#include "breakdown_rows.h"

static uint64_t next_ms, next_id;
static enum row_type next_type = TYPE_PTA;
static const char *next_stack; /* of the blocks that follow */

static struct analysis *make(unsigned by, unsigned depth)
{
	struct analysis *a = owners_new(NULL);

	next_ms = next_id = 0;
	owners_group(a, &(struct groups_options){.by = by, .depth = depth, .lines = true});
	return a;
}

/* A block of a module; returns its id. */
static uint64_t hold(struct analysis *a, const char *layer, const char *owner, uint64_t bytes,
		     uint64_t tensor_bytes)
{
	struct row r = base_row(ROW_MALLOC, next_type, 0, ++next_ms);

	r.device = next_type == TYPE_HOST ? DEV_HOST : 0;
	r.has_ptr = true;
	r.ptr = 0x10000 * ++next_id;
	r.layer = layer;
	r.tensor_bytes = tensor_bytes;
	row_attr_number(&r, ATTR_ALLOCATION_ID, next_id);
	row_attr_number(&r, ATTR_SIZE, bytes);
	row_attr_text(&r, ATTR_OWNER, owner, strlen(owner));
	r.py_stack = next_stack;
	r.py_stack_len = next_stack ? strlen(next_stack) : 0;
	a->ops->row(a, &r);
	return next_id;
}

/* A buffer in which two modules have tensors. */
static void hold_shared(struct analysis *a, uint64_t bytes, uint64_t one, uint64_t other)
{
	const struct row_part parts[] = {{"N:h.0.w:", one}, {"N:h.1.w:", other}};
	struct row r = base_row(ROW_MALLOC, next_type, 0, ++next_ms);

	r.device = 0;
	r.has_ptr = true;
	r.ptr = 0x10000 * ++next_id;
	r.layer = "N:h:";
	r.tensor_bytes = one + other;
	r.parts = parts;
	r.nparts = 2;
	row_attr_number(&r, ATTR_ALLOCATION_ID, next_id);
	row_attr_number(&r, ATTR_SIZE, bytes);
	row_attr_text(&r, ATTR_OWNER, "PTA@weight", strlen("PTA@weight"));
	a->ops->row(a, &r);
}

/* It ends, in the forward pass in which it began. */
static void drop(struct analysis *a, uint64_t id)
{
	struct row r = base_row(ROW_FREE, TYPE_PTA, 0, ++next_ms);

	r.device = 0;
	r.has_ptr = true;
	r.ptr = 0x10000 * id;
	r.temporary = true;
	row_attr_number(&r, ATTR_ALLOCATION_ID, id);
	a->ops->row(a, &r);
}

/* "h.* 300 2x, h.*.a 200": names, bytes and counts in order. */
static const char *groups_of(struct analysis *a)
{
	static struct buf b;
	json_t *o = a->ops->json(a, 1000), *g;
	size_t i;

	buf_clear(&b);
	json_array_foreach(at(o, "devices.0.groups"), i, g)
	{
		buf_addf(&b, "%s%s %lld", i ? ", " : "", STR(g, "name"), NUM(g, "bytes"));
		if (NUM(g, "count") > 1)
			buf_addf(&b, " %lldx", NUM(g, "count"));
	}
	json_decref(o);
	return buf_str(&b);
}

static void hold_blocks(struct analysis *a, unsigned n)
{
	static char texts[16][2][64];

	for (unsigned i = 0; i < n; i++) {
		snprintf(texts[i][0], 64, "N:h.%u.mlp.w:", i);
		snprintf(texts[i][1], 64, "N:h.%u.mlp:MLP", i);
		hold(a, texts[i][0], "PTA@weight", 512, 400);
		hold(a, texts[i][1], "PTA@activation", 100, 0);
	}
}

TEST(groups, equal_layers_are_one)
{
	struct analysis *a = make(GROUPS_BY_MODULE, 0);

	hold_blocks(a, 12);
	hold(a, "N:head.weight:", "PTA@weight", 1024, 1000);
	hold(a, NULL, "PTA@backward", 50, 0);
	CHECK_STR(groups_of(a), "h.*.mlp 7344 12x, head 1024, (no module) 50");
	CHECK_STR(answer_of(a),
		  "h.*.mlp holds 7.17 KiB of the peak of 8.22 KiB of device 0 25.0 ms after the "
		  "start, 12 x 612 B: 4.69 KiB weights, 1.31 KiB rounding of the allocator, 1.17 "
		  "KiB activations. Besides, head holds 1.00 KiB.");
	json_t *o = a->ops->json(a, 10);
	CHECK_INT(NUM(o, "devices.0.groups.0.types.weight"), 4800);
	CHECK_INT(NUM(o, "devices.0.groups.0.types.rounding"), 1344);
	CHECK_INT(NUM(o, "devices.0.groups.0.least_bytes"), 612);
	CHECK_STR(STR(o, "devices.0.by"), "module");
	json_decref(o);
	CHECK_HAS(text_of(a), "12 x 612 B");
	analysis_free(a);
	a = make(GROUPS_BY_MODULE, 9); /* with parameters */
	hold_blocks(a, 2);
	CHECK_STR(groups_of(a), "h.*.mlp 1224 2x, h.*.mlp.w 1024 2x");
	analysis_free(a);
	a = make(GROUPS_BY_MODULE, 1);
	hold_blocks(a, 2);
	CHECK_STR(groups_of(a), "h 1224");
	analysis_free(a);
}

TEST(groups, each_has_its_part_of_a_shared_buffer)
{
	struct analysis *a = make(GROUPS_BY_MODULE, 64);

	hold_shared(a, 1024, 600, 400);
	hold(a, "N:h.0.w:", "PTA@gradient", 100, 100);
	CHECK_STR(groups_of(a), "h 1124, h.0.w 700, h.1.w 400");
	a->ops->free(a);
	a = make(GROUPS_BY_MODULE, 64); /* what cannot be is of the module around them */
	hold_shared(a, 1024, 600, 4000);
	CHECK_STR(groups_of(a), "h 1024");
	a->ops->free(a);
}

TEST(groups, layers_that_differ_are_named)
{
	struct analysis *a = make(GROUPS_BY_MODULE, 0);

	hold_blocks(a, 4);
	hold(a, "N:h.2.mlp.more:", "PTA@weight", 512, 0);
	hold(a, "N:h.9.mlp:Other", "PTA@activation", 7, 0);
	CHECK_STR(groups_of(a), "h 2967, h.{0-1,3}.mlp 1836 3x, h.2.mlp 1124, h.9.mlp 7");
	analysis_free(a);
	a = make(GROUPS_BY_MODULE, 0); /* without weights classes tell */
	hold(a, "N:s.0:ReLU", "PTA@activation", 10, 0);
	hold(a, "N:s.1:Tanh", "PTA@activation", 11, 0);
	hold(a, "N:s.2:ReLU", "PTA@activation", 12, 0);
	CHECK_STR(groups_of(a), "s 33, s.{0,2} 22 2x, s.1 11");
	analysis_free(a);
}

TEST(groups, what_belongs_to_none_is_said_if_it_is_the_largest)
{
	struct analysis *a = make(GROUPS_BY_MODULE, 0);

	hold(a, "N:head:Linear", "PTA@activation", 1024, 0);
	hold(a, NULL, "PTA@backward", 4096, 0);
	CHECK_HAS(answer_of(a), "head holds 1.00 KiB of the peak of 5.00 KiB ");
	CHECK_HAS(answer_of(a), "; 4.00 KiB belong to no module, mostly what backward allocated.");
	analysis_free(a);
}

/* Each has a name of its own, so that none is equal to another. */
TEST(groups, modules_without_end)
{
	struct analysis *a = make(GROUPS_BY_MODULE, 0);
	unsigned n = GROUPS_MAX_MODULES + 1000;
	char text[32];

	for (unsigned i = 0; i < n; i++) {
		snprintf(text, sizeof(text), "M:x%u:C", i);
		hold(a, text, "PTA@activation", 10, 0);
	}
	json_t *o = a->ops->json(a, 3);
	CHECK_INT(NUM(o, "devices.0.groups_total"), GROUPS_MAX_MODULES + 1);
	CHECK_INT(NUM(o, "devices.0.modules_left_out"), 1000);
	CHECK_STR(STR(o, "devices.0.groups.3.name"), GROUPS_OTHER_MODULES);
	CHECK_HAS(answer_of(a), "; 9.77 KiB belong to other modules.");
	CHECK_INT(NUM(o, "devices.0.groups.3.bytes"), 1000 * 10);
	json_decref(o);
	CHECK_HAS(text_of(a), "Only 65,536 modules are told apart: 1,000 more paths are counted");
	analysis_free(a);
}

TEST(groups, paths_that_describe_nothing_have_the_name_of_their_model_in_front)
{
	struct analysis *a = make(GROUPS_BY_MODULE, 64);

	hold(a, "Sequential:0:Linear", "PTA@activation", 50, 0);
	hold(a, "Sequential:0.weight:", "PTA@weight", 300, 0);
	hold(a, "Sequential:2.bias:", "PTA@weight", 7, 0);
	CHECK_HAS(groups_of(a), "Sequential.0.weight 300");
	CHECK_HAS(groups_of(a), "Sequential.2.bias 7");
	analysis_free(a);
	a = make(GROUPS_BY_MODULE, 64); /* a single layer */
	hold(a, "Linear:weight:", "PTA@weight", 300, 0);
	CHECK_HAS(groups_of(a), "Linear.weight 300");
	analysis_free(a);
	a = make(GROUPS_BY_MODULE, 64); /* its own paths say enough */
	hold(a, "Net:fc:Linear", "PTA@activation", 50, 0);
	hold(a, "Net:scale:", "PTA@weight", 4, 0);
	CHECK(!strstr(groups_of(a), "Net"));
	analysis_free(a);
}

TEST(groups, several_models_have_their_names_in_front)
{
	struct analysis *a = make(GROUPS_BY_MODULE, 0);

	hold(a, "G:a:A", "PTA@activation", 10, 0);
	hold(a, "G::G", "PTA@activation", 1, 0);
	hold(a, ":Loss:Loss", "PTA@activation", 5, 0);
	CHECK_STR(groups_of(a), "a 10, Loss 5, G 1");
	hold(a, "D:a:A", "PTA@activation", 20, 0);
	CHECK_STR(groups_of(a), "D.a 20, G 11, G.a 10, Loss 5");
	analysis_free(a);
}

TEST(groups, temporaries_are_known_when_they_are_freed)
{
	struct analysis *a = make(GROUPS_BY_TYPE, 0);
	uint64_t id = hold(a, "N:a:A", "PTA@activation", 100, 0);

	hold(a, "N:a:A", "PTA@activation@ops", 10, 0);
	CHECK_STR(groups_of(a), "activations 110");
	drop(a, id);
	hold(a, "N:a:A", "PTA@user", 1, 0);
	CHECK_STR(groups_of(a), "temporaries of the forward pass 100, activations 10");
	analysis_free(a);
}

TEST(groups, by_line)
{
	struct analysis *a = make(GROUPS_BY_LINE, 0);
	static const char one[] = "libjob.so(one+0x1) [0x1]", two[] = "libjob.so(two+0x1) [0x2]";

	take(a, 1, BLK(TYPE_PTA, 1, 0x1000, 10, "PTA@weight", .c_stack = one));
	take(a, 2, BLK(TYPE_PTA, 2, 0x2000, 20, "PTA@gradient", .c_stack = two));
	take(a, 3, BLK(TYPE_PTA, 3, 0x3000, 30, "PTA@gradient", .c_stack = one));
	take(a, 4, BLK(TYPE_PTA, 4, 0x4000, 4, "PTA@gradient"));
	CHECK_STR(groups_of(a), "one (libjob.so) 40, two (libjob.so) 20, (no call stack) 4");
	analysis_free(a);
}

TEST(groups, nothing_known)
{
	struct analysis *a = make(GROUPS_BY_MODULE, 0);

	take(a, 1, BLK(TYPE_HAL, 1, 0x1000, 100, "CANN@HCCL"));
	CHECK_HAS(answer_of(a), "Device 0 held 100 B; nothing is known about its modules.");
	CHECK_HAS(answer_of(a), "--analysis=decompose");
	analysis_free(a);
}

TEST(groups, of_the_peak)
{
	struct analysis *a = peak_new(&(struct peak_options){.groups = {.by = GROUPS_BY_MODULE}});

	next_ms = next_id = 0;
	hold_blocks(a, 3);
	CHECK_HAS(answer_of(a), "h.*.mlp holds 1.79 KiB of the peak of 1.79 KiB of device 0");
	CHECK_HAS(text_of(a), "By module\n");
	CHECK_STR(groups_of(a), "h.*.mlp 1836 3x");
	analysis_free(a);
}

static void add_side(void *arg, uint32_t device, const struct groups *g)
{
	struct groups_difference *d = arg;

	difference_add(d, d->ndevices ? DIFFERENCE_OTHER : DIFFERENCE_BASE, device, g);
}

static const char *difference_of(const struct groups_difference *d)
{
	static struct buf b;
	struct analysis_style style = {.top = 10};

	buf_clear(&b);
	struct report r = report_begin(&style, &b);
	difference_text(d, &r);
	return buf_str(&b);
}

TEST(groups, two_runs)
{
	struct groups_difference d = {.by = GROUPS_BY_MODULE};
	struct analysis *a = make(GROUPS_BY_MODULE, 0);

	hold_blocks(a, 2);
	hold(a, "N:head.weight:", "PTA@weight", 1024, 0);
	owners_each(a, add_side, &d);
	analysis_free(a);
	a = make(GROUPS_BY_MODULE, 0);
	hold_blocks(a, 2);
	hold(a, "N:h.0.mlp:MLP", "PTA@activation", 2048, 0);
	owners_each(a, add_side, &d);
	analysis_free(a);
	difference_finish(&d);
	CHECK_INT(difference_count(&d), 2);
	CHECK_HAS(difference_of(&d),
		  "h.*.mlp holds 2.00 KiB more than in base at the peak of device 0: 2.00 KiB "
		  "activations. The peak\nis 3.20 KiB, 2.20 KiB in base.\n");
	CHECK_HAS(difference_of(&d), "head     ");
	json_t *o = json_object();
	difference_put(o, &d, 10);
	CHECK(json_is_false(at(o, "identical")));
	CHECK_STR(STR(o, "groups.1.name"), "head");
	CHECK_INT(NUM(o, "groups.1.diff_bytes"), -1024);
	CHECK_INT(NUM(o, "groups.1.types.weight"), -1024);
	CHECK_INT(NUM(o, "devices.0.diff_bytes"), 1024);
	json_decref(o);
	difference_release(&d);
}

/* Four lines were added above main() and one inside. */
TEST(groups, call_sites_whose_lines_moved)
{
	struct groups_difference d = {0};
	char old[] = "load (job.py:5)", new[] = "load (job.py:10)", other[] = "save (job.py:9)";
	struct group before[] = {{.name = old, .bytes = 100}, {.name = other, .bytes = 7}};
	struct group after[] = {{.name = new, .bytes = 300}};
	struct groups base = {.options.by = GROUPS_BY_LINE, .list = before, .n = 2, .bytes = 107};
	struct groups compare = {.options.by = GROUPS_BY_LINE, .list = after, .n = 1, .bytes = 300};

	difference_add(&d, DIFFERENCE_BASE, 0, &base);
	difference_add(&d, DIFFERENCE_OTHER, 0, &compare);
	difference_finish(&d);
	CHECK_INT(difference_count(&d), 2);
	CHECK_HAS(difference_of(&d), "load (job.py:10) holds 200 B more than in base");
	CHECK_HAS(difference_of(&d),
		  "Lines have moved: 1 call site was paired by function and file");
	json_t *o = json_object();
	difference_put(o, &d, 10);
	CHECK_STR(STR(o, "groups.0.base_name"), old);
	CHECK_INT(NUM(o, "groups.0.diff_bytes"), 200);
	CHECK_STR(STR(o, "groups.1.name"), other);
	CHECK(json_is_null(at(o, "groups.1.base_name")));
	CHECK_INT(NUM(o, "moved_groups"), 1);
	json_decref(o);
	difference_release(&d);
}
/* Lines have moved between the runs; functions have not. */
TEST(groups, the_line_of_a_difference)
{
	struct groups_difference d = {.by = GROUPS_BY_MODULE};
	struct analysis *a = make(GROUPS_BY_MODULE, 0);

	next_stack = "/j/train.py(10): attend\n";
	hold(a, "N:h.0.attn:Attn", "PTA@activation", 4096, 0);
	next_stack = "/j/train.py(20): mix\n";
	hold(a, "N:h.0.attn:Attn", "PTA@activation", 1024, 0);
	owners_each(a, add_side, &d);
	analysis_free(a);
	a = make(GROUPS_BY_MODULE, 0);
	next_stack = "/j/train.py(11): attend\n";
	hold(a, "N:h.0.attn:Attn", "PTA@activation", 4096, 0);
	next_stack = "/j/train.py(22): mix\n";
	hold(a, "N:h.0.attn:Attn", "PTA@activation", 3072, 0);
	owners_each(a, add_side, &d);
	analysis_free(a);
	next_stack = NULL;
	difference_finish(&d);
	CHECK_HAS(difference_of(&d),
		  "at the peak of device 0, from mix (train.py:22): 2.00\nKiB act");
	json_t *o = json_object();
	difference_put(o, &d, 10);
	CHECK_STR(STR(o, "groups.0.where"), "mix (train.py:22)");
	json_decref(o);
	difference_release(&d);
}

/* FSDP says both in which phase it is and what it allocates; on the host that is true of tensors alone. */
TEST(groups, types_of_sharded_memory)
{
	struct analysis *a = make(GROUPS_BY_MODULE, 0);

	next_type = TYPE_HOST;
	hold(a, "N:h.0.w:", "HOST@fsdp1@backward@gradient", 1000, 1000);
	hold(a, "N:h.0.w:", "HOST@fsdp1@backward@gradient", 50, 0); /* only allocated for it */
	hold(a, NULL, "HOST@fsdp1@backward@gradient", 200, 0);
	hold(a, NULL, "HOST@sharded_weight", 30, 0);
	hold(a, NULL, "HOST@weight", 4, 0);
	next_type = TYPE_PTA;
	json_t *o = a->ops->json(a, 1000);
	CHECK_INT(NUM(o, "devices.0.groups.0.types.gradient"), 1000);
	CHECK_INT(NUM(o, "devices.0.groups.0.types.backward"), 50);
	CHECK_STR(STR(o, "devices.0.groups.1.name"), "(no module)");
	CHECK_INT(NUM(o, "devices.0.groups.1.types.gradient"), 0);
	CHECK_INT(NUM(o, "devices.0.groups.1.types.backward"), 200);
	CHECK_INT(NUM(o, "devices.0.groups.1.types.other"), 30);
	CHECK_INT(NUM(o, "devices.0.groups.1.types.weight"), 4);
	json_decref(o);
	analysis_free(a);
}
