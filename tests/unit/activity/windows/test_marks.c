/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Texts behind hashes, and marks that become ranges. */
#include "activity/windows/marks.h"
#include "activity/windows/names.h"
#include "test.h"

#include <stdint.h>

/* --- texts --- */

static void tell(struct texts *n, uint64_t hash, const char *text)
{
	CHECK(texts_add(n, hash, text, strlen(text)));
}

TEST(activity_names, equal_texts_are_one)
{
	struct texts n = {0};

	CHECK_STR(texts_find(&n, 5)->text, "?");
	tell(&n, 5, "five");
	tell(&n, 5, "another five");
	CHECK_STR(texts_find(&n, 5)->text, "five");
	tell(&n, 6, "five");
	CHECK(texts_find(&n, 6) == texts_find(&n, 5));
	CHECK_STR(texts_find(&n, 0)->text, "");
	tell(&n, 7, "");
	CHECK(texts_find(&n, 7) == texts_find(&n, 0));
	tell(&n, 8, "a\xffz");
	tell(&n, 9, "a\xfez");
	CHECK_STR(texts_find(&n, 8)->text, "a\xef\xbf\xbdz");
	CHECK(texts_find(&n, 8) == texts_find(&n, 9));
	tell(&n, 10, "default");
	CHECK(texts_find(&n, 10) == n.domain);
	texts_release(&n);
}

/* A number in every name: those that are used stay, the others make room. */
TEST(activity_names, endless_names_do_not_fill_the_memory)
{
	struct texts n = {0};
	char text[64];
	unsigned times = 0;
	size_t most = 0;

	tell(&n, 1, "used");
	tell(&n, 2, "not used");
	const char *used = texts_find(&n, 1)->text;
	for (uint64_t i = 0; i < 3 * NAMES_MAX; i++) {
		snprintf(text, sizeof(text), "step %llu", (unsigned long long)i);
		if (!texts_add(&n, 100 + i, text, strlen(text))) {
			CHECK(texts_may_forget(&n));
			texts_forget(&n);
			times++;
			tell(&n, 100 + i, text);
		}
		CHECK_STR(texts_find(&n, 100 + i)->text, text);
		CHECK(texts_find(&n, 1)->text == used);
		most = n.bytes > most ? n.bytes : most;
	}
	CHECK(times >= 3 && times <= 6);
	CHECK(n.by_hash.count <= NAMES_MAX && n.next_id <= NAMES_MAX + 8);
	CHECK(most < NAMES_MAX_BYTES);
	CHECK_STR(texts_find(&n, 2)->text, "?");
	CHECK_STR(texts_find(&n, 0)->text, "");
	texts_release(&n);
}

TEST(activity_names, long_names_are_limited_by_bytes)
{
	struct texts n = {0};
	char text[REC_MAX_TEXT];
	uint64_t i = 0;

	memset(text, 'x', sizeof(text));
	while (memcpy(text, &i, sizeof(i)), texts_add(&n, 100 + i, text, sizeof(text)))
		i++;
	CHECK(n.bytes <= NAMES_MAX_BYTES);
	n.refused++;
	CHECK_STR(texts_find(&n, 100 + i)->text, "…other");
	texts_release(&n);
}

/* --- marks --- */

struct told {
	struct activity list[16];
	unsigned n;
};

static void keep(void *arg, const struct activity *a)
{
	struct told *t = arg;

	CHECK(t->n < 16);
	t->list[t->n++] = *a;
}

static void mark(struct marks *m, struct told *t, uint8_t flag, uint8_t place, uint64_t ns)
{
	bool opens = place == ACTIVITY_ON_HOST && flag & 0x1b;
	struct activity a = {
		.kind = ACTIVITY_MARKER,
		.flag = flag,
		.place = place,
		.correlation = 10,
		.start_ns = ns,
		.end_ns = ns,
		.name = opens ? "name" : "",
		.detail = opens ? "domain" : "",
		.more = "",
		.pid = place ? 0 : 77,
		.tid = place ? 0 : 8,
		.device = place ? 1 : ACTIVITY_NOWHERE,
		.stream = place ? 2 : ACTIVITY_NOWHERE,
	};

	marks_add(m, &a, true, keep, t);
}

/* The four moments of a range that a stream passes, in every order. */
TEST(activity_marks, a_range_in_any_order)
{
	static const struct {
		uint8_t flag, place;
		uint64_t ns;
	} moments[4] = {
		{ACTIVITY_MARK_START_DEVICE, ACTIVITY_ON_HOST, 100},
		{ACTIVITY_MARK_END_DEVICE, ACTIVITY_ON_HOST, 110},
		{ACTIVITY_MARK_START_DEVICE, ACTIVITY_ON_DEVICE, 200},
		{ACTIVITY_MARK_END_DEVICE, ACTIVITY_ON_DEVICE, 250},
	};

	for (unsigned order = 0; order < 256; order++) {
		unsigned i[4] = {order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6 & 3};
		struct marks m = {0};
		struct told t = {.n = 0};

		if (((1u << i[0]) | (1u << i[1]) | (1u << i[2]) | (1u << i[3])) != 15)
			continue;
		for (unsigned k = 0; k < 4; k++)
			mark(&m, &t, moments[i[k]].flag, moments[i[k]].place, moments[i[k]].ns);
		CHECK_INT(t.n, 2);
		CHECK_INT(m.open.count, 0);
		for (unsigned k = 0; k < 2; k++) {
			const struct activity *a = &t.list[k];
			bool device = a->place == ACTIVITY_ON_DEVICE;
			CHECK_STR(a->name, "name");
			CHECK_STR(a->detail, "domain");
			CHECK_INT(a->correlation, 10);
			CHECK_INT(a->flag, ACTIVITY_MARK_START_DEVICE);
			CHECK(a->start_ns == (device ? 200 : 100));
			CHECK(a->end_ns == (device ? 250 : 110));
			CHECK(a->pid == (device ? 0 : 77) && a->tid == (device ? 0 : 8));
			CHECK(a->device == (device ? 1 : ACTIVITY_NOWHERE));
		}
		marks_release(&m);
		CHECK_INT(m.dropped, 0);
	}
}

TEST(activity_marks, instants)
{
	struct marks m = {0};
	struct told t = {.n = 0};

	mark(&m, &t, ACTIVITY_MARK_INSTANT, ACTIVITY_ON_HOST, 100);
	CHECK(t.n == 1 && t.list[0].start_ns == 100 && t.list[0].end_ns == 100);
	CHECK_INT(m.open.count, 0);
	mark(&m, &t, ACTIVITY_MARK_INSTANT_DEVICE, ACTIVITY_ON_DEVICE, 210);
	CHECK_INT(t.n, 1); /* it has no name yet */
	mark(&m, &t, ACTIVITY_MARK_INSTANT_DEVICE, ACTIVITY_ON_HOST, 200);
	CHECK(t.n == 3 && t.list[2].place == ACTIVITY_ON_DEVICE && t.list[2].start_ns == 210);
	CHECK_STR(t.list[2].name, "name");
	CHECK_INT(m.open.count, 0);
	marks_release(&m);
}

TEST(activity_marks, what_makes_no_sense_does_no_harm)
{
	struct marks m = {0};
	struct told t = {.n = 0};

	mark(&m, &t, 0, ACTIVITY_ON_HOST, 1);
	mark(&m, &t, 3, ACTIVITY_ON_HOST, 1);
	mark(&m, &t, 64, ACTIVITY_ON_HOST, 1);
	CHECK_INT(m.malformed, 3);
	mark(&m, &t, ACTIVITY_MARK_END, ACTIVITY_ON_HOST, 50);
	mark(&m, &t, ACTIVITY_MARK_END, ACTIVITY_ON_HOST, 60);
	CHECK_INT(t.n, 0);
	mark(&m, &t, ACTIVITY_MARK_START, ACTIVITY_ON_HOST, 100);
	CHECK(t.n == 1 && t.list[0].start_ns == 100 && t.list[0].end_ns == 100);
	/* an id that is used again before it has ended */
	mark(&m, &t, ACTIVITY_MARK_START, ACTIVITY_ON_HOST, 200);
	mark(&m, &t, ACTIVITY_MARK_START, ACTIVITY_ON_HOST, 300);
	mark(&m, &t, ACTIVITY_MARK_END, ACTIVITY_ON_HOST, 310);
	CHECK(t.n == 2 && t.list[1].start_ns == 300 && m.dropped == 1);
	marks_release(&m);
}

TEST(activity_marks, the_oldest_of_too_many_go)
{
	struct marks m = {0};
	struct told t = {.n = 0};
	struct activity a = {.kind = ACTIVITY_MARKER,
			     .flag = ACTIVITY_MARK_START,
			     .name = "n",
			     .detail = "",
			     .more = ""};

	for (uint64_t i = 0; i < MARKS_OPEN_MAX + 3; i++) {
		a.correlation = i;
		marks_add(&m, &a, true, keep, &t);
	}
	CHECK_INT(m.open.count, MARKS_OPEN_MAX);
	CHECK_INT(m.dropped, 3);
	a.flag = ACTIVITY_MARK_END;
	a.correlation = 3;
	marks_add(&m, &a, true, keep, &t);
	CHECK_INT(t.n, 1);
	marks_clear(&m);
	CHECK_INT(m.dropped, 3 + MARKS_OPEN_MAX - 1);
	marks_release(&m);
}
