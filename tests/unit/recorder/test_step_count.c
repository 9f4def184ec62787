/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/flight/step_count.h"

#include "test.h"

static bool put_mark(struct step_count *c, uint32_t proc, uint8_t kind, const char *text)
{
	_Alignas(8) char bytes[128] = {0};
	struct rec_mark *r = (struct rec_mark *)bytes;

	r->kind = kind;
	r->len = (uint16_t)strlen(text);
	r->head = (struct rec){.type = REC_MARK, .size = rec_size(sizeof(*r), r->len)};
	memcpy(r->text, text, r->len);
	return step_count_record(c, proc, &r->head);
}

TEST(step_count, however_a_job_reports_them)
{
	struct rec_system ended = {.head = {.type = REC_SYSTEM, .size = sizeof(ended)},
				   .value = 7,
				   .kind = SYSTEM_STEP};
	struct rec_monitor begun = {.head = {.type = REC_MONITOR, .size = sizeof(begun)},
				    .value = 9,
				    .kind = MONITOR_STEP};
	struct step_count c = {0};

	CHECK(!put_mark(&c, 1, MARK_RANGE_START, "step starter"));
	CHECK(!put_mark(&c, 1, MARK_INSTANT, "step start"));
	CHECK_INT(c.step, 0);
	CHECK(put_mark(&c, 1, MARK_RANGE_START, "step start"));
	CHECK(put_mark(&c, 2, MARK_RANGE_START, "step start"));
	CHECK(put_mark(&c, 1, MARK_RANGE_START, "step start"));
	CHECK_INT(c.step, 2);
	CHECK(step_count_record(&c, 1, &ended.head));
	CHECK_INT(c.step, 8);
	CHECK(step_count_record(&c, 1, &begun.head));
	CHECK_INT(c.step, 10);
	step_count_release(&c);
}
