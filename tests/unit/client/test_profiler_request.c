/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/profiler_request.h"

#include "test.h"

static struct profiler_outcome outcome(const char *text)
{
	json_t *reply = json_loads(text, 0, NULL);
	struct profiler_outcome o = profiler_outcome_read(reply);

	CHECK(reply != NULL);
	json_decref(reply);
	return o;
}

TEST(profiler_request, reads_every_answer)
{
	CHECK_INT(profiler_outcome_read(NULL).state, PROFILER_FAILED);
	CHECK_INT(outcome("{\"commandStatus\":\"ineffective\"}").state, PROFILER_INEFFECTIVE);
	CHECK_INT(outcome("{\"commandStatus\":\"unknown\"}").state, PROFILER_UNKNOWN);
	CHECK_INT(outcome("{\"status\":\"failed\"}").state, PROFILER_REFUSED);
	CHECK_INT(outcome("{\"processesMatched\":7}").state, PROFILER_REFUSED);
	CHECK_INT(outcome("{\"processesMatched\":[]}").state, PROFILER_NO_MATCH);
	CHECK_INT(outcome("{\"processesMatched\":[1]}").state, PROFILER_HELD);
	CHECK_INT(outcome("{\"processesMatched\":[1],\"activityProfilersBusy\":1}").state,
		  PROFILER_BUSY);
	CHECK_INT(outcome("{\"processesMatched\":[],\"notYours\":1}").state, PROFILER_REFUSED);
	CHECK_INT(outcome("{\"commandStatus\":\"ineffective\",\"notYours\":1}").state,
		  PROFILER_INEFFECTIVE);
	struct profiler_outcome o = outcome("{\"processesMatched\":[1,2,3],\"commandStatus\":"
					    "\"effective\",\"activityProfilersTriggered\":[1]}");
	CHECK_INT(o.state, PROFILER_TRIGGERED);
	CHECK_INT(o.matched, 3);
	CHECK_INT(o.triggered, 1);
}
