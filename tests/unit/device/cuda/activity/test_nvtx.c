/* SPDX-License-Identifier: MulanPSL-2.0 */
/* NVTX: a program's copy of it, which is this file, hands over its table. */
#include "device/cuda/activity/cupti.h"

#include "test.h"

#include <sys/syscall.h>
#include <unistd.h>

#define TOLD 256

static struct {
	uint8_t flag;
	uint64_t id;
	uint32_t where[2];
	char name[64], domain[64];
} told[TOLD];
static unsigned ntold;

static void on_told(const struct collect_activity *a)
{
	CHECK_INT(a->kind, ACTIVITY_MARKER);
	CHECK_INT(a->place, ACTIVITY_ON_HOST);
	CHECK(a->start_ns && a->start_ns == a->end_ns && ntold < TOLD);
	told[ntold].flag = a->flag;
	told[ntold].id = a->correlation;
	told[ntold].where[0] = a->where[0];
	told[ntold].where[1] = a->where[1];
	snprintf(told[ntold].name, 64, "%s", a->name ? a->name : "(none)");
	snprintf(told[ntold].domain, 64, "%s", a->detail ? a->detail : "(none)");
	ntold++;
}

/* The functions of a program, by number; NULL: no tool. */
static nvtx_slot core[16], core2[16];
static nvtx_slot *core_table[16], *core2_table[16];
static unsigned core_size, core2_size;

static int module(int which, nvtx_slot ***table, unsigned *size)
{
	if (which != NVTX_CORE && which != NVTX_CORE2)
		return 0;
	*table = which == NVTX_CORE ? core_table : core2_table;
	*size = which == NVTX_CORE ? core_size : core2_size;
	return *size != 0;
}

static struct nvtx_callbacks callbacks;

static const void *export_table(uint32_t which)
{
	return which == NVTX_CALLBACKS ? &callbacks : NULL;
}

static int attach(unsigned n, unsigned n2)
{
	callbacks = (struct nvtx_callbacks){sizeof(callbacks), module};
	core_size = n;
	core2_size = n2;
	for (unsigned i = 1; i < 16; i++) {
		core_table[i] = &core[i];
		core2_table[i] = &core2[i];
	}
	ntold = 0;
	cupti_emit = on_told;
	return InitializeInjectionNvtx2(export_table);
}

static void mark(const char *s)
{
	((void (*)(const char *))core[2])(s);
}
static uint64_t start(const char *s)
{
	return ((uint64_t(*)(const char *))core[5])(s);
}
static void end(uint64_t id)
{
	((void (*)(uint64_t))core[7])(id);
}
static int push(const char *s)
{
	return ((int (*)(const char *))core[9])(s);
}
static int pop(void)
{
	return ((int (*)(void))core[11])();
}
static void *domain(const char *s)
{
	return ((void *(*)(const char *))core2[12])(s);
}
static void *text(void *d, const char *s)
{
	return ((void *(*)(void *, const char *))core2[10])(d, s);
}
static void domain_mark(void *d, const struct nvtx_event *e)
{
	((void (*)(void *, const struct nvtx_event *))core2[1])(d, e);
}
static int domain_push(void *d, const struct nvtx_event *e)
{
	return ((int (*)(void *, const struct nvtx_event *))core2[4])(d, e);
}
static int domain_pop(void *d)
{
	return ((int (*)(void *))core2[5])(d);
}

TEST(nvtx, off_nothing_is_told)
{
	CHECK_INT(attach(16, 16), 1);
	mark("a");
	CHECK_INT(push("b"), NVTX_NOT_TRACKED);
	CHECK_INT(pop(), NVTX_NOT_TRACKED);
	CHECK(start("c") == 0);
	end(0);
	CHECK_INT(ntold, 0);
	CHECK(!core[3] && !core[6] && !core[10]); /* wide text stays without a tool */
}

TEST(nvtx, marks_and_ranges)
{
	attach(16, 16);
	nvtx_switch(true);
	mark("a");
	CHECK_INT(push("outer"), 0);
	CHECK_INT(push("inner"), 1);
	CHECK_INT(pop(), 1);
	uint64_t id = start("across");
	CHECK_INT(pop(), 0);
	end(id);
	CHECK_INT(pop(), NVTX_NOT_TRACKED);
	CHECK_INT(ntold, 7);
	CHECK(told[0].flag == ACTIVITY_MARK_INSTANT && !strcmp(told[0].name, "a"));
	CHECK_STR(told[0].domain, "");
	CHECK_INT(told[0].where[0], getpid());
	CHECK_INT(told[0].where[1], syscall(SYS_gettid));
	CHECK(told[1].flag == ACTIVITY_MARK_START && told[2].flag == ACTIVITY_MARK_START);
	CHECK(told[3].flag == ACTIVITY_MARK_END && told[3].id == told[2].id);
	CHECK(told[5].flag == ACTIVITY_MARK_END && told[5].id == told[1].id);
	CHECK(told[6].flag == ACTIVITY_MARK_END && told[6].id == id && told[4].id == id);
	CHECK(told[1].id && told[2].id != told[1].id && id != told[2].id);
}

/* A range is told with both ends, or not at all. */
TEST(nvtx, ranges_belong_to_the_time_in_which_it_is_on)
{
	attach(16, 16);
	push("before");
	nvtx_switch(true);
	push("during");
	CHECK_INT(pop(), 0);
	CHECK_INT(pop(), NVTX_NOT_TRACKED);
	push("open");
	nvtx_switch(false);
	pop();
	push("off");
	nvtx_switch(true);
	CHECK_INT(pop(), NVTX_NOT_TRACKED);
	CHECK_INT(ntold, 3);
	CHECK_STR(told[0].name, "during");
	CHECK_STR(told[2].name, "open");
}

TEST(nvtx, too_deep_ranges_keep_their_order)
{
	attach(16, 16);
	nvtx_switch(true);
	for (int i = 0; i < 50; i++)
		CHECK_INT(push("deep"), i);
	for (int i = 49; i >= 0; i--)
		CHECK_INT(pop(), i);
	CHECK_INT(ntold, 64);
	for (unsigned i = 0; i < 32; i++)
		CHECK(told[i].id == told[63 - i].id);
}

TEST(nvtx, domains_and_registered_texts)
{
	attach(16, 16);
	void *d = domain("NCCL"), *other = domain("mine");
	CHECK(d && other && d != other && domain("NCCL") == d);
	void *s = text(d, "all reduce");
	struct nvtx_event e = {.size = sizeof(e), .message_type = NVTX_REGISTERED, .message = s};
	nvtx_switch(true);
	domain_push(d, &e);
	domain_pop(d);
	e.message_type = NVTX_ASCII;
	e.message = "plain";
	domain_mark(other, &e);
	e.message_type = NVTX_UNICODE;
	domain_mark(NULL, &e);
	e.message_type = NVTX_REGISTERED; /* of nobody that we know: not followed */
	domain_mark(&e, &e);
	domain_mark(d, NULL);
	e.size = 8;
	domain_mark(d, &e);
	CHECK_INT(ntold, 7);
	CHECK(!strcmp(told[0].name, "all reduce") && !strcmp(told[0].domain, "NCCL"));
	CHECK(!strcmp(told[1].domain, "NCCL") && told[1].id == told[0].id);
	CHECK(!strcmp(told[2].name, "plain") && !strcmp(told[2].domain, "mine"));
	for (unsigned i = 3; i < 7; i++)
		CHECK_STR(told[i].name, "(none)");
	CHECK_STR(told[4].domain, "");
}

static unsigned nranges;
static char last_range[64];

static void on_range(const char *message)
{
	nranges++;
	snprintf(last_range, sizeof(last_range), "%s", message);
}

/* Ranges that may be steps are told whether it is on or not; marks are none. */
TEST(nvtx, ranges_that_may_be_steps)
{
	attach(16, 16);
	void *d = domain("trainer");
	struct nvtx_event e = {.size = sizeof(e), .message_type = NVTX_ASCII};

	push("step start"); /* nobody listens yet */
	nvtx_on_range(on_range);
	for (unsigned on = 0; on < 2; on++) {
		nvtx_switch(on != 0);
		nranges = 0;
		push("step start");
		start("step start");
		e.message = "step start";
		domain_push(d, &e);
		((uint64_t(*)(void *, const struct nvtx_event *))core2[2])(d, &e);
		((int (*)(const struct nvtx_event *))core[8])(&e);
		((uint64_t(*)(const struct nvtx_event *))core[4])(&e);
		CHECK_INT(nranges, 6);
		CHECK_STR(last_range, "step start");
		mark("step start");
		domain_mark(d, &e);
		push("forward");
		push("");
		push(NULL);
		domain_push(d, NULL);
		CHECK_INT(nranges, 6);
	}
	nvtx_on_range(NULL);
	push("step start");
	CHECK_INT(nranges, 6);
}

TEST(nvtx, registering_ends_somewhere)
{
	static char name[2000];
	unsigned n = 0;

	attach(16, 16);
	memset(name, 'x', sizeof(name) - 1);
	while (text(NULL, name))
		n++;
	CHECK(n > 500 && n < 1100);
	CHECK(!text(NULL, "short"));
	CHECK(!text(NULL, NULL));
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "domain %d", i);
		(void)domain(name);
	}
	CHECK(!domain("one more") && domain("domain 5") && !domain(NULL));
}

TEST(nvtx, what_a_program_lacks_is_left_alone)
{
	CHECK_INT(InitializeInjectionNvtx2(NULL), 0);
	CHECK_INT(attach(0, 0), 0);
	core2[12] = NULL;
	CHECK_INT(attach(3, 2), 1);
	CHECK(core[2] && !core[5] && core2[1] && !core2[12]);
	callbacks.struct_size = 4;
	CHECK_INT(InitializeInjectionNvtx2(export_table), 0);
}
