/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/remote/objects/objects.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "python_image.h"
#include "test.h"

struct heard {
	char text[512];
};

static void hear_name(void *arg, uint64_t ident, const char *name)
{
	struct heard *h = arg;
	size_t n = strlen(h->text);

	snprintf(h->text + n, sizeof(h->text) - n, "%llu=%s;", (unsigned long long)ident, name);
}

struct setting {
	struct image m;
	struct remote r;
	struct python_place place;
	struct buf out;
};

static void setting_init(struct setting *s, unsigned minor)
{
	memset(s, 0, sizeof(*s));
	image_init(&s->m, minor);
	s->place.layout = s->m.l;
	remote_init(&s->r, getpid());
}

static void setting_release(struct setting *s)
{
	free(s->m.bytes);
	buf_release(&s->out);
}

static const char *repr(struct setting *s, uint64_t object, size_t limit)
{
	buf_clear(&s->out);
	remote_repr(&s->r, &s->place, object, limit, &s->out);
	return buf_str(&s->out);
}

TEST(remote_objects, names_of_threads_in_every_way_attributes_are_kept)
{
	static const char *const names[] = {"MainThread", "loader-1", "pin memory"};

	for (unsigned minor = 7; minor <= 14; minor++) {
		struct setting s;
		struct heard h = {0};

		setting_init(&s, minor);
		uint64_t interp = image_interp(&s.m, names, 3);
		int r = remote_thread_names(&s.r, &s.place, interp, hear_name, &h);
		CHECK_INT(r, 0);
		CHECK_STR(h.text, "1000=MainThread;1001=loader-1;1002=pin memory;");
		setting_release(&s);
	}
}

TEST(remote_objects, names_are_refused_where_the_dict_makes_no_sense)
{
	static const char *const names[] = {"MainThread"};
	struct setting s;
	struct heard h = {0};
	uint64_t modules, keys;

	setting_init(&s, 12);
	uint64_t interp = image_interp(&s.m, names, 1);
	memcpy(&modules, (void *)(uintptr_t)(interp + s.m.l.interp.modules), 8);
	memcpy(&keys, (void *)(uintptr_t)(modules + s.m.l.dict.keys), 8);
	image_set(keys, 24, 1u << 30); /* more entries than the table has room for */
	CHECK_INT(remote_thread_names(&s.r, &s.place, interp, hear_name, &h), -EPROTO);
	image_set(modules, s.m.l.dict.keys, 0x123456789000);
	CHECK_INT(remote_thread_names(&s.r, &s.place, interp, hear_name, &h), -EFAULT);
	image_set(interp, s.m.l.interp.modules, 0);
	CHECK_INT(remote_thread_names(&s.r, &s.place, interp, hear_name, &h), -ENOENT);
	CHECK_STR(h.text, "");
	setting_release(&s);
}

TEST(remote_objects, numbers_as_python_writes_them)
{
	static const unsigned minors[] = {8, 11, 12, 13};

	for (size_t i = 0; i < 4; i++) {
		struct setting s;

		setting_init(&s, minors[i]);
		CHECK_STR(repr(&s, image_int(&s.m, 0), 100), "0");
		CHECK_STR(repr(&s, image_int(&s.m, -7), 100), "-7");
		CHECK_STR(repr(&s, image_int(&s.m, 1ll << 40), 100), "1099511627776");
		CHECK_STR(repr(&s, image_int(&s.m, INT64_MAX), 100), "9223372036854775807");
		CHECK_STR(repr(&s, image_int(&s.m, INT64_MIN), 100), "<int of about 64 bits>");
		CHECK_STR(repr(&s, image_float(&s.m, 0.1), 100), "0.1");
		CHECK_STR(repr(&s, image_float(&s.m, 100), 100), "100.0");
		CHECK_STR(repr(&s, image_float(&s.m, 1e300), 100), "1e+300");
		CHECK_STR(repr(&s, image_float(&s.m, 1.5e-5), 100), "1.5e-05");
		CHECK_STR(repr(&s, image_float(&s.m, -123456.75), 100), "-123456.75");
		CHECK_STR(repr(&s, image_float(&s.m, INFINITY), 100), "inf");
		CHECK_STR(repr(&s, image_float(&s.m, NAN), 100), "nan");
		CHECK_STR(repr(&s, s.m.none, 100), "None");
		setting_release(&s);
	}
}

TEST(remote_objects, containers_and_texts_are_cut_and_cycles_end)
{
	struct setting s;
	uint64_t items[40], key, value;

	setting_init(&s, 12);
	items[0] = image_int(&s.m, 1);
	items[1] = image_str(&s.m, "it's\n");
	items[2] = image_bytes(&s.m, "\0a", 2);
	CHECK_STR(repr(&s, image_tuple(&s.m, items, 3), 200), "(1, 'it\\'s\\n', b'\\x00a')");
	CHECK_STR(repr(&s, image_tuple(&s.m, items, 1), 200), "(1,)");
	CHECK_STR(repr(&s, image_tuple(&s.m, items, 0), 200), "()");
	for (unsigned i = 0; i < 40; i++)
		items[i] = items[0];
	CHECK_STR(repr(&s, image_list(&s.m, items, 40), 200),
		  "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, … 40 items]");
	CHECK_STR(repr(&s, image_list(&s.m, items, 3), 4), "[1, 1, … 3 items]");
	key = image_str(&s.m, "lr");
	value = image_float(&s.m, 0.5);
	CHECK_STR(repr(&s, image_dict(&s.m, &key, &value, 1, true), 200), "{'lr': 0.5}");
	CHECK_STR(repr(&s, image_dict(&s.m, &value, &key, 1, false), 200), "{0.5: 'lr'}");

	uint64_t self = image_tuple(&s.m, items, 1);
	image_set(self, s.m.l.object.tuple_items, self);
	CHECK_STR(repr(&s, self, 200), "((((…,),),),)");
	CHECK_STR(repr(&s, image_str(&s.m, "abcdefghij"), 5), "'abcd…'");
	setting_release(&s);
}

TEST(remote_objects, others_are_named_and_nonsense_is_survived)
{
	struct setting s;
	char want[128];

	setting_init(&s, 13);
	uint64_t object = image_instance(&s.m, "torch.Tensor", NULL, NULL, 0);
	snprintf(want, sizeof(want), "<torch.Tensor at 0x%llx>", (unsigned long long)object);
	CHECK_STR(repr(&s, object, 100), want);
	CHECK_STR(repr(&s, 0, 100), "<unreadable>");
	CHECK_STR(repr(&s, 0x123456789000, 100), "<unreadable>");
	CHECK_STR(repr(&s, UINT64_MAX - 7, 100), "<unreadable>");
	setting_release(&s);
}

static void hear_local(void *arg, const char *name, bool is_argument, uint64_t object)
{
	struct setting *s = arg;

	buf_addf(&s->out, "%s%s=", is_argument ? "*" : "", name);
	remote_repr(&s->r, &s->place, object, 50, &s->out);
	buf_add_char(&s->out, ';');
}

TEST(remote_objects, variables_of_a_frame)
{
	for (unsigned minor = 7; minor <= 12; minor++) {
		struct setting s;
		uint64_t code;

		setting_init(&s, minor);
		uint64_t frame = image_frame(&s.m, &code);
		CHECK_INT(remote_locals(&s.r, &s.place, frame, code, hear_local, &s), 0);
		CHECK_STR(buf_str(&s.out), "*step=3;seen=7;"); /* batch has no value */
		CHECK_INT(remote_locals_words(&s.r, &s.place, code), minor <= 10 ? 2 : 3);
		/* the frame belongs to another function by now */
		image_set(frame, s.m.l.frame.code, code + 64);
		CHECK_INT(remote_locals(&s.r, &s.place, frame, code, hear_local, &s), -EAGAIN);
		setting_release(&s);
	}
}

TEST(remote_objects, small_numbers_that_are_no_objects)
{
	struct setting s;

	setting_init(&s, 14);
	CHECK_STR(repr(&s, 42u << 2 | 3, 100), "42");
	setting_release(&s);
}

TEST(remote_objects, what_a_process_knows_of_its_job)
{
	for (unsigned minor = 7; minor <= 14; minor++) {
		struct setting s;
		struct remote_job job;

		setting_init(&s, minor);
		s.place.runtime = image_job(&s.m);
		CHECK_INT(remote_job(&s.r, &s.place, &job), 0);
		CHECK_INT(job.rank, 2);
		CHECK_INT(job.world_size, 5);
		CHECK(job.environ_known && job.child && job.loader);
		CHECK_INT(job.spawn_index, -1);
		CHECK_STR(buf_str(&job.environ), "RANK=7");
		buf_release(&job.environ);
		setting_release(&s);
	}
}

/* What os.environ says, with '\n' for NUL; "?" if it is not known. */
static const char *environ_of(struct setting *s, uint64_t data)
{
	struct remote_job job;

	s->place.runtime = image_job_with(&s->m, data);
	buf_clear(&s->out);
	CHECK_INT(remote_job(&s->r, &s->place, &job), 0);
	for (size_t i = 0; i < job.environ.len && job.environ_known; i++)
		buf_add_char(&s->out, job.environ.data[i] ? job.environ.data[i] : '\n');
	buf_release(&job.environ);
	return job.environ_known ? buf_str(&s->out) : "?";
}

/* A dict of `n` variables of 128 bytes and, as the last one, RANK=7. */
static uint64_t large_environ(struct setting *s, unsigned n)
{
	enum { MAX = 8000, HEAD = 32 + 256, ENTRY = 24 };
	static uint8_t keys[HEAD + ENTRY * (MAX + 1)];
	char text[126];
	uint64_t rank[2] = {image_bytes(&s->m, "RANK", 4), image_bytes(&s->m, "7", 1)};
	uint64_t dict = image_dict(&s->m, rank, rank + 1, 1, false), count = n + 1;

	memset(text, 'x', sizeof(text));
	uint64_t other[2] = {image_bytes(&s->m, "A", 1), image_bytes(&s->m, text, sizeof(text))};
	BUG_ON(n > MAX);
	memset(keys, 0, HEAD);
	keys[8] = 13; /* slots, */
	keys[9] = 8; /* bytes of indices: both as powers of two */
	memcpy(keys + 24, &count, 8);
	for (unsigned i = 0; i <= n; i++)
		memcpy(keys + HEAD + i * ENTRY + 8, i < n ? other : rank, 16);
	image_set(dict, s->m.l.dict.keys, (uintptr_t)keys);
	return dict;
}

TEST(remote_objects, environments_of_any_size)
{
	struct setting s;

	setting_init(&s, 12);
	CHECK_STR(environ_of(&s, large_environ(&s, 700)), "RANK=7\n");
	CHECK_STR(environ_of(&s, large_environ(&s, 8000)), "?"); /* not all of it was read */
	setting_release(&s);
}

TEST(remote_objects, nul_bytes_make_no_variables)
{
	struct setting s;

	setting_init(&s, 12);
	uint64_t keys[3] = {image_bytes(&s.m, "A\0RANK", 6), image_bytes(&s.m, "WORLD_SIZE", 10),
			    image_bytes(&s.m, "LOCAL_RANK", 10)};
	uint64_t values[3] = {image_bytes(&s.m, "3", 1), image_bytes(&s.m, "8\0RANK=4", 8),
			      image_bytes(&s.m, "1", 1)};
	CHECK_STR(environ_of(&s, image_dict(&s.m, keys, values, 3, false)), "LOCAL_RANK=1\n");
	setting_release(&s);
}
