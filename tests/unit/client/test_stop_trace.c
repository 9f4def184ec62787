/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/stop_trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "test.h"

/* "pid state: words|pid state: words" */
static const char *read_rows(const char *reply, const char *said)
{
	static char text[1024];
	json_t *r = reply ? json_loads(reply, 0, NULL) : NULL;
	json_t *s = said ? json_loads(said, 0, NULL) : NULL;
	size_t n = 0, at = 0;

	CHECK(!reply == !r && !said == !s);
	struct stopped_process *rows = stop_trace_read(r, s, &n);
	text[0] = '\0';
	for (size_t i = 0; i < n; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%lld %s%s%s", i ? "|" : "",
				       (long long)rows[i].pid, trace_end_names[rows[i].end],
				       *rows[i].words ? ": " : "", rows[i].words);
	free(rows);
	json_decref(r);
	json_decref(s);
	return text;
}

TEST(stop_trace, the_outcome_in_each_process)
{
	CHECK_STR(
		read_rows("{\"processesMatched\":[9,1,2,3,4,5],\"tracesDropped\":[5],"
			  "\"notStopped\":[{\"pid\":3,\"why\":\"a framework\"}]}",
			  "{\"told\":[{\"pid\":1,\"what\":\"ended in step 4\"},"
			  "{\"pid\":2,\"what\":\"dropped before\"},{\"pid\":5,\"what\":\"none\"}],"
			  "\"failed\":[{\"pid\":4,\"why\":\"it is old\"}],\"waiting\":[9]}"),
		"1 ended: ended in step 4|2 dropped: dropped before|3 not ended: a framework|"
		"4 not ended: it is old|5 dropped: dropped before it was fetched|"
		"9 not ended: the request was sent, but the process has not replied yet");
	CHECK_STR(read_rows("{\"processesMatched\":[2,1]}",
			    "{\"told\":[{\"pid\":1,\"what\":\"none\"}]}"),
		  "1 no trace|2 no trace");
}

/* One was being taken and the next one waited; a guest is there beside PyTorch's profiler. */
TEST(stop_trace, more_than_one_of_a_process)
{
	CHECK_STR(read_rows("{\"processesMatched\":[1,1],\"tracesDropped\":[1],"
			    "\"notStopped\":[{\"pid\":1,\"why\":\"PyTorch\"}]}",
			    "{\"told\":[{\"pid\":1,\"what\":\"ended\"}]}"),
		  "1 ended: ended|1 dropped: dropped before it was fetched|1 not ended: PyTorch");
}

/* The second of two who end it at the same time gets the answer, or the daemon has been started
 * anew: that there is no trace is not what the process has said. */
TEST(stop_trace, an_answer_that_is_not_there)
{
	const char *unknown = "1 not ended: the request was sent, but its outcome is unknown: "
			      "another request came "
			      "meanwhile, or the process or the daemon ended";

	CHECK_STR(read_rows("{\"processesMatched\":[1],\"activityProfilersTriggered\":[1]}",
			    "{\"done\":0,\"told\":[],\"failed\":[],\"waiting\":[]}"),
		  unknown);
	CHECK_STR(read_rows("{\"processesMatched\":[1],\"activityProfilersTriggered\":[1]}", NULL),
		  unknown);
	CHECK_STR(read_rows("{\"processesMatched\":[1,2],\"activityProfilersTriggered\":[1,2],"
			    "\"tracesDropped\":[2]}",
			    "{\"told\":[{\"pid\":1,\"what\":\"none\"}],\"waiting\":[2]}"),
		  "1 no trace|2 dropped: dropped before it was fetched|"
		  "2 not ended: the request was sent, but the process has not replied yet");
}

TEST(stop_trace, answers_that_are_none)
{
	CHECK_STR(read_rows(NULL, NULL), "");
	CHECK_STR(read_rows("{\"status\":\"failed\"}", "{}"), "");
	CHECK_STR(read_rows("{\"processesMatched\":7,\"tracesDropped\":{},\"notStopped\":[null]}",
			    "{\"told\":[[],{\"what\":3}],\"failed\":\"x\",\"waiting\":[\"y\"]}"),
		  "0 not ended");
	CHECK_STR(read_rows("{}", "{\"told\":[{\"pid\":2,\"what\":\"something else\"}]}"),
		  "2 not ended: something else");
}
