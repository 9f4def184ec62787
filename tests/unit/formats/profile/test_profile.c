/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/profile/profile.h"

#include <errno.h>
#include <jansson.h>
#include <zlib.h>

#include "base/containers/intern.h"
#include "base/fs.h"
#include "test.h"
#include "tmpdir.h"

#define TEXT(s) intern(s, strlen(s))

static struct profile *make(enum profile_format format, bool lines, uint64_t period_ns)
{
	return profile_new(&(struct profile_options){.format = format,
						     .period_ns = period_ns,
						     .lines = lines,
						     .title = "two \"ranks\"",
						     .start_real_ns = 1700000000000000000});
}

static struct profile_frame frame(const char *name, const char *file, int line, int first_line)
{
	return (struct profile_frame){.name = TEXT(name),
				      .file = TEXT(file),
				      .line = line,
				      .first_line = first_line,
				      .users = strstr(file, "/app/") != NULL};
}

/* Two processes; the second has a thread with names that need care. */
static void fill(struct profile *p)
{
	struct profile_frame a[] = {frame("<module>", "/x/app/train.py", 90, 1),
				    frame("step", "/x/app/train.py", 41, 40),
				    frame("load;训练\n", "/x/app/data.py", 7, 5)};
	struct profile_frame b[] = {a[0], frame("step", "/x/app/train.py", 42, 40)};
	struct profile_frame c[] = {frame("poll", "", 0, 0)};
	const char *rank0 = TEXT("process 41: rank 0"), *rank1 = TEXT("process 43: rank 1");

	for (unsigned i = 0; i < 3; i++) {
		profile_add(p, rank0, TEXT("thread 41 MainThread"), 41, 41, a, 3, 1);
		profile_add(p, rank0, TEXT("thread 41 MainThread"), 41, 41, a, 2, 1);
		profile_add(p, rank0, TEXT("thread 41 MainThread"), 41, 41, b, 2, 2);
	}
	profile_add(p, rank1, NULL, 43, 44, c, 1, 10);
	profile_add(p, rank1, NULL, 43, 44, c, 0, 10); /* no frames: nothing to count */
}

static struct buf written(const struct profile *p)
{
	const char *path = tmpfile_path("profile");
	struct buf b = {0};

	CHECK_INT(profile_write(p, path, NULL), 0);
	CHECK_INT(fs_read_file(path, 1 << 20, &b, NULL), 0);
	return b;
}

TEST(profile, collapsed_by_function)
{
	struct profile *p = make(PROFILE_COLLAPSED, false, 1000);

	fill(p);
	struct buf b = written(p);
	CHECK_STR(buf_str(&b), "process 41: rank 0;thread 41 MainThread;<module> (app/train.py:1);"
			       "step (app/train.py:40) 9\n"
			       "process 41: rank 0;thread 41 MainThread;<module> (app/train.py:1);"
			       "step (app/train.py:40);load:训练  (app/data.py:5) 3\n"
			       "process 43: rank 1;poll 10\n");
	buf_release(&b);
	profile_free(p);
}

TEST(profile, collapsed_by_line)
{
	struct profile *p = make(PROFILE_COLLAPSED, true, 1000);

	fill(p);
	struct buf b = written(p);
	CHECK(strstr(buf_str(&b), "<module> (app/train.py:90);step (app/train.py:41) 3\n"));
	CHECK(strstr(buf_str(&b), "<module> (app/train.py:90);step (app/train.py:42) 6\n"));
	buf_release(&b);
	profile_free(p);
}

TEST(profile, stacks_are_cut_where_there_is_no_room)
{
	struct profile *p = profile_new(
		&(struct profile_options){.format = PROFILE_COLLAPSED, .most_nodes = 3});
	struct profile_frame f[] = {{intern("a", 1), intern("", 0), 0, 0, false},
				    {intern("b", 1), intern("", 0), 0, 0, false},
				    {intern("c", 1), intern("", 0), 0, 0, false}};
	struct profile_frame g[] = {f[0], f[2], f[1]};

	profile_add(p, NULL, NULL, 1, 1, f, 3, 2);
	profile_add(p, NULL, NULL, 1, 1, g, 3, 5);
	struct buf b = written(p);
	CHECK_STR(buf_str(&b), "a 5\na;b;c 2\n");
	buf_release(&b);
	profile_free(p);
}

static json_int_t sum(json_t *list)
{
	json_int_t total = 0;

	for (size_t i = 0; i < json_array_size(list); i++)
		total += json_integer_value(json_array_get(list, i));
	return total;
}

TEST(profile, speedscope)
{
	struct profile *p = make(PROFILE_SPEEDSCOPE, true, 1000);

	fill(p);
	struct buf b = written(p);
	json_t *j = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
	json_t *frames = json_object_get(json_object_get(j, "shared"), "frames");
	json_t *first = json_array_get(json_object_get(j, "profiles"), 0);
	json_t *second = json_array_get(json_object_get(j, "profiles"), 1);
	CHECK_INT(json_array_size(frames), 5);
	CHECK_STR(json_string_value(json_object_get(json_array_get(frames, 2), "name")),
		  "load;训练\n");
	CHECK_INT(json_integer_value(json_object_get(json_array_get(frames, 1), "line")), 41);
	CHECK(!json_object_get(json_array_get(frames, 4), "file"));
	CHECK_INT(json_array_size(json_object_get(first, "samples")), 3);
	CHECK_INT(sum(json_object_get(first, "weights")), 12000);
	CHECK_INT(json_integer_value(json_object_get(first, "endValue")), 12000);
	CHECK_STR(json_string_value(json_object_get(first, "unit")), "nanoseconds");
	CHECK_STR(json_string_value(json_object_get(second, "name")), "process 43: rank 1");
	CHECK_INT(json_integer_value(json_object_get(second, "endValue")), 10000);
	CHECK_STR(json_string_value(json_object_get(j, "name")), "two \"ranks\"");
	json_decref(j);
	buf_release(&b);
	profile_free(p);
}

/* --- a decoder of profile.proto that knows nothing of the encoder --- */

struct message {
	const unsigned char *at, *end;
};

struct field {
	unsigned number;
	uint64_t value;
	struct message bytes;
};

static uint64_t varint(struct message *m)
{
	uint64_t v = 0;

	for (unsigned shift = 0;; shift += 7) {
		CHECK(m->at < m->end && shift < 64);
		v |= (uint64_t)(*m->at & 0x7f) << shift;
		if (!(*m->at++ & 0x80))
			return v;
	}
}

static bool next(struct message *m, struct field *f)
{
	if (m->at == m->end)
		return false;
	uint64_t tag = varint(m);
	*f = (struct field){.number = (unsigned)(tag >> 3), .value = varint(m)};
	CHECK((tag & 7) == 0 || (tag & 7) == 2);
	if ((tag & 7) == 2) {
		CHECK(f->value <= (uint64_t)(m->end - m->at));
		f->bytes = (struct message){m->at, m->at + f->value};
		m->at += f->value;
	}
	return true;
}

/* The n-th field of that number. */
static struct field pick(struct message m, unsigned number, unsigned n)
{
	struct field f;

	while (next(&m, &f))
		if (f.number == number && n-- == 0)
			return f;
	return (struct field){0};
}

static unsigned count(struct message m, unsigned number)
{
	struct field f;
	unsigned n = 0;

	while (next(&m, &f))
		n += f.number == number;
	return n;
}

static struct buf unpacked(const struct buf *packed)
{
	z_stream z = {0};
	struct buf b = {0};

	CHECK(inflateInit2(&z, 15 + 16) == Z_OK);
	z.next_in = (unsigned char *)packed->data;
	z.avail_in = (unsigned)packed->len;
	z.next_out = (unsigned char *)buf_room(&b, 1 << 20);
	z.avail_out = 1 << 20;
	CHECK(inflate(&z, Z_FINISH) == Z_STREAM_END);
	b.len = z.total_out;
	inflateEnd(&z);
	return b;
}

static const char *text_at(struct message m, uint64_t n)
{
	static char text[4][256];
	static unsigned at;
	struct message s = pick(m, 6, (unsigned)n).bytes;
	char *out = text[at++ % 4];

	snprintf(out, sizeof(text[0]), "%.*s", (int)(s.end - s.at), (const char *)s.at);
	return out;
}

TEST(profile, pprof)
{
	struct profile *p = make(PROFILE_PPROF, false, 1000);

	fill(p);
	struct buf packed = written(p), b = unpacked(&packed);
	struct message m = {(unsigned char *)b.data, (unsigned char *)b.data + b.len};
	CHECK_STR(text_at(m, 0), "");
	CHECK_STR(text_at(m, pick(pick(m, 1, 0).bytes, 1, 0).value), "samples");
	CHECK_STR(text_at(m, pick(pick(m, 1, 1).bytes, 2, 0).value), "nanoseconds");
	CHECK_INT(count(m, 1), 2);
	CHECK_INT(count(m, 2), 4); /* lines 41 and 42 are two stacks */
	CHECK_INT(count(m, 4), 5);
	CHECK_INT(count(m, 5), 4);
	CHECK_INT(pick(m, 12, 0).value, 1000);
	CHECK_INT(pick(m, 9, 0).value, 1700000000000000000);

	/* the stack of three: innermost location first, with its function and line */
	struct message deep = pick(m, 2, 1).bytes;
	struct message ids = pick(deep, 1, 0).bytes, values = pick(deep, 2, 0).bytes;
	struct message place = pick(m, 4, (unsigned)varint(&ids) - 1).bytes;
	struct message line = pick(place, 4, 0).bytes;
	struct message function = pick(m, 5, (unsigned)pick(line, 1, 0).value - 1).bytes;
	CHECK_STR(text_at(m, pick(function, 2, 0).value), "load;训练\n");
	CHECK_STR(text_at(m, pick(function, 4, 0).value), "/x/app/data.py");
	CHECK_INT(pick(function, 5, 0).value, 5);
	CHECK_INT(pick(line, 2, 0).value, 7);
	varint(&ids);
	varint(&ids);
	CHECK(ids.at == ids.end);
	CHECK_INT(varint(&values), 3);
	CHECK_INT(varint(&values), 3000);
	struct message label = pick(deep, 3, 0).bytes;
	CHECK_STR(text_at(m, pick(label, 1, 0).value), "pid");
	CHECK_INT(pick(label, 3, 0).value, 41);
	buf_release(&packed);
	buf_release(&b);
	profile_free(p);
}

TEST(profile, nothing_at_all)
{
	for (unsigned format = PROFILE_COLLAPSED; format <= PROFILE_PPROF; format++) {
		struct profile *p = make((enum profile_format)format, true, 0);
		struct buf b = written(p);

		buf_release(&b);
		profile_free(p);
	}
	profile_free(NULL);
}

TEST(profile, memory_grows_with_stacks_not_with_samples)
{
	struct profile *p = make(PROFILE_COLLAPSED, true, 1000);
	struct profile_frame f[32];
	uint64_t total = 0;

	for (unsigned i = 0; i < 32; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%u", i);
		f[i] = frame(name, "/a/b/c.py", (int)i + 1, (int)i);
	}
	for (unsigned i = 0; i < 100000; i++)
		profile_add(p, TEXT("p"), TEXT("t"), 1, 1, f, 1 + i % 32, 1);
	struct buf b = written(p);
	buf_str(&b);
	for (char *s = strtok(b.data, "\n"); s; s = strtok(NULL, "\n"))
		total += (uint64_t)atoll(strrchr(s, ' ') + 1);
	CHECK_INT(total, 100000);
	CHECK(b.len < 32 * 32 * 32);
	buf_release(&b);
	profile_free(p);
}

TEST(profile, a_place_that_cannot_be_written)
{
	struct profile *p = make(PROFILE_COLLAPSED, true, 1000);
	struct err err = {0};

	CHECK_INT(profile_write(p, "/no/where", &err), -ENOENT);
	CHECK(strstr(err.text, "/no/where"));
	profile_free(p);
}

/* --- flame graphs --- */

static struct profile *make_flame(void)
{
	return profile_new(&(struct profile_options){
		.format = PROFILE_FLAME, .period_ns = 1000000, .title = "a < b"});
}

static unsigned count_of(const struct buf *b, const char *text)
{
	unsigned n = 0;

	for (const char *at = b->data; (at = strstr(at, text)); at++)
		n++;
	return n;
}

TEST(profile, flame_boxes_have_the_width_of_their_stacks)
{
	struct profile *p = make_flame();

	fill(p);
	struct buf b = written(p);
	buf_add_char(&b, '\0');
	CHECK(!strncmp(b.data, "<svg ", 5));
	CHECK(strstr(b.data, "a &lt; b: 22.0 ms</text>"));
	/* everything; 12 of 22 samples are of rank 0, and 9 of these go through step() */
	CHECK(strstr(b.data, "<title>all: 22.0 ms, 100.00 %</title>"
			     "<rect x=\"8.00\" y=\"46\" width=\"1184.00\""));
	CHECK(strstr(b.data, "rank 0, thread 41 MainThread: 12.0 ms, 54.55 %</title>"
			     "<rect x=\"8.00\" y=\"64\" width=\"645.82\""));
	CHECK(strstr(b.data, "<g class=\"u\"><title>load;训练  (app/data.py:5): 3.0 ms, 13.64 %"));
	CHECK(strstr(b.data, "<g class=\"o\"><title>poll: 10.0 ms, 45.45 %</title>"
			     "<rect x=\"653.82\""));
	CHECK_INT(count_of(&b, "<title>"), 7);
	buf_release(&b);
	profile_free(p);
}

TEST(profile, flame_names_are_text_only)
{
	struct profile *p = make_flame();
	struct profile_frame f[] = {
		frame("</title><script>alert(1)</script>", "/x/\"&.py", 1, 1),
		frame("]]></script>\xff\xfe\x1b[31m", "", 0, 0),
	};

	profile_add(p, NULL, NULL, 1, 1, f, 2, 5);
	struct buf b = written(p);
	buf_add_char(&b, '\0');
	CHECK_INT(count_of(&b, "<script>"), 1); /* ours */
	CHECK_INT(count_of(&b, "]]>"), 1); /* its end */
	CHECK(strstr(b.data,
		     "&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt; (x/&quot;&amp;.py:1)"));
	CHECK(!memchr(b.data, 0x1b, b.len) && !memchr(b.data, 0xff, b.len));
	buf_release(&b);
	profile_free(p);
}

TEST(profile, flame_leaves_out_what_nobody_could_see)
{
	struct profile *p = make_flame();
	struct profile_frame deep[1000], narrow[] = {frame("narrow", "", 0, 0)};

	for (int i = 0; i < 1000; i++)
		deep[i] = frame("again", "/x/app/a.py", 1, i);
	profile_add(p, NULL, NULL, 1, 1, deep, 1000, 1000000);
	profile_add(p, NULL, NULL, 1, 1, narrow, 1, 1);
	struct buf b = written(p);
	buf_add_char(&b, '\0');
	CHECK_INT(count_of(&b, "<title>"), 300);
	CHECK(strstr(b.data, "703 boxes are not drawn"));
	buf_release(&b);
	profile_free(p);
}

TEST(profile, an_empty_flame_graph_is_one)
{
	struct profile *p = make_flame();
	struct buf b = written(p);

	buf_add_char(&b, '\0');
	CHECK(strstr(b.data, "</svg>"));
	CHECK_INT(count_of(&b, "<title>"), 0);
	buf_release(&b);
	profile_free(p);
}
