/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/output.h"

#include <stdlib.h>

#include "test.h"

static void check_tagged(const char *path, const char *want)
{
	struct buf out = {0};

	stack_output_tagged(path, 1000000000ll * 1700000000 + 42000000, &out);
	CHECK_STR(buf_str(&out), want);
	buf_release(&out);
}

TEST(stack_options, names_with_the_time_in_them)
{
	setenv("TZ", "UTC", 1);
	check_tagged("stack_trace.json", "stack_trace.20231114_221320_042.json");
	check_tagged("/a.b/trace", "/a.b/trace.20231114_221320_042");
	check_tagged("out/x.json.gz", "out/x.20231114_221320_042.json.gz");
	check_tagged("out/x.gz", "out/x.20231114_221320_042.gz");
	check_tagged("out/.hidden", "out/.hidden.20231114_221320_042");
}
