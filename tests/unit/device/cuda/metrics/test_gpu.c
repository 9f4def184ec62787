/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * GPUs. Where the vendor's library is found (LD_LIBRARY_PATH=build/sim SIM_GPU_COUNT=1) they are
 * looked at; elsewhere the point is that there are none, and why.
 */
#include "device/metrics.h"
#include "test.h"

#include <errno.h>
#include <unistd.h>

static unsigned told, ratios;

static void look(void *arg, const struct sample *s)
{
	(void)arg;
	CHECK_STR(s->source, "gpu");
	CHECK(s->device >= 0 && s->n > 0);
	told++;
	for (size_t i = 0; i < s->n; i++) {
		CHECK(!s->metrics[i].instance);
		ratios += !strcmp(s->metrics[i].name, "sm_active_ratio");
	}
}

static unsigned ratios_of_a_round(void *g)
{
	ratios = told = 0;
	CHECK_INT(cuda_metrics.read(g, look, NULL, NULL), 0);
	CHECK(told > 0);
	return ratios;
}

TEST(cuda_metrics, some_or_none)
{
	const struct metrics_options o = {.env_attribution = true};
	struct err err = {0};
	void *g = NULL;
	int r = cuda_metrics.open(&g, &o, &err);

	if (r < 0) {
		CHECK_INT(r, -ENOENT);
		CHECK(err.text[0]);
		NEEDS(false, "nvidia-gpu", err.text);
	}
	CHECK_INT(ratios_of_a_round(g), 0); /* they need a round before */
	CHECK_INT(ratios_of_a_round(g), 0); /* and some time in between */
	usleep(120000);
	unsigned n = ratios_of_a_round(g);
	CHECK_INT(cuda_metrics.pause(g, true), 0);
	usleep(120000);
	CHECK_INT(ratios_of_a_round(g), 0);
	CHECK_INT(cuda_metrics.pause(g, false), 0);
	CHECK_INT(ratios_of_a_round(g), 0);
	usleep(120000);
	CHECK_INT(ratios_of_a_round(g), n);
	cuda_metrics.close(g);
}
