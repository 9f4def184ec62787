/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics/course.h"

#include <math.h>
#include <stdbool.h>

void course_add(struct course *c, int64_t time_ns, double value)
{
	int64_t bin = time_ns / COURSE_BIN_NS;

	if (bin <= 0 || !isfinite(value) || bin < c->bin)
		return;
	if (!c->bin || bin - c->bin >= COURSE_BINS) {
		for (unsigned i = 0; i < COURSE_BINS; i++)
			c->means[i] = NAN;
		c->bin = bin;
		c->sum = c->n = 0;
	}
	while (c->bin < bin) {
		c->means[++c->bin % COURSE_BINS] = NAN;
		c->sum = c->n = 0;
	}
	c->sum += value;
	c->n++;
	c->means[bin % COURSE_BINS] = (float)(c->sum / c->n);
}

int64_t course_first_bin(int64_t after_ns, int64_t now_ns)
{
	int64_t newest = now_ns / COURSE_BIN_NS, oldest = newest - COURSE_BINS + 1;
	int64_t wanted = after_ns > 0 ? after_ns / COURSE_BIN_NS : 0;

	return wanted < oldest ? oldest : wanted > newest ? newest : wanted;
}

json_t *course_json(const struct course *c, int64_t from_bin, int64_t now_ns)
{
	json_t *list = json_array();

	for (int64_t bin = from_bin; bin <= now_ns / COURSE_BIN_NS; bin++) {
		bool known = c->bin && bin <= c->bin && bin > c->bin - COURSE_BINS &&
			     !isnan(c->means[bin % COURSE_BINS]);

		json_array_append_new(list, known ? json_real((double)c->means[bin % COURSE_BINS])
						  : json_null());
	}
	return list;
}
