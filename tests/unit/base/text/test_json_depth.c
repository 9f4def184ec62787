/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include "base/text/json_depth.h"

#include <string.h>

static unsigned depth(const char *json)
{
	return json_depth(json, strlen(json));
}

TEST(json_depth, counts_levels)
{
	CHECK_INT(depth(""), 0);
	CHECK_INT(depth("7"), 0);
	CHECK_INT(depth("{\"a\":[{}],\"b\":[]}"), 3);
}

TEST(json_depth, passes_over_strings)
{
	CHECK_INT(depth("{\"[[[\\\"[[\":\"{{\\\\\"}"), 1);
	CHECK_INT(depth("[\"\\\\\",[]]"), 2);
}

TEST(json_depth, says_something_of_what_is_no_json)
{
	CHECK_INT(depth("]]]]["), 1);
	CHECK_INT(depth("\"\\"), 0);
}
