/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <string.h>

#include "memory/analysis/processes/processes.h"
#include "test.h"

#define MIB (1ull << 20)

static void add_sample(struct processes *ps, uint32_t pid, uint64_t rss, uint64_t peak,
		       uint64_t blocks, uint64_t most_blocks)
{
	struct rec_usage u = {.rss_bytes = rss,
			      .anon_bytes = rss - 8 * MIB,
			      .file_bytes = 8 * MIB,
			      .peak_rss_bytes = peak};
	struct process_blocks b = {.bytes = blocks, .blocks = 1, .most_bytes = most_blocks};

	processes_sample(ps, pid, 1, &u, &b);
}

static const char *coverage_of(const struct processes *ps, struct buf *out)
{
	buf_clear(out);
	processes_coverage_text(ps, out);
	return buf_str(out);
}

TEST(coverage, peak_between_samples)
{
	struct processes ps = {.host = true};
	struct frame_proc proc = {.pid = 7, .ppid = 1};
	struct rec_process end = {.rank = -1, .peak_rss_bytes = 209 * MIB};
	struct process_blocks most = {.most_bytes = 196 * MIB};
	struct buf t = {0};

	processes_add(&ps, &proc, "job");
	add_sample(&ps, 7, 123 * MIB, 123 * MIB, 115 * MIB, 115 * MIB);
	CHECK(!strstr(coverage_of(&ps, &t), "Between samples"));
	processes_note(&ps, 7, &end, &most);
	CHECK(strstr(coverage_of(&ps, &t), "up to 209.00 MiB"));
	CHECK(strstr(buf_str(&t), "blocks came to 196.00 MiB at most."));
	CHECK_INT(processes_coverage(&ps), COVERAGE_GOOD);

	/* 209 MiB less 120 in blocks and 8 in files */
	ps.list[0].max_blocks = 120 * MIB;
	CHECK_INT(process_uncovered_peak(&ps.list[0]), 81 * MIB);
	CHECK_INT(processes_coverage(&ps), COVERAGE_PARTIAL);
	CHECK(strstr(coverage_of(&ps, &t), "so 81.00 MiB of that peak are not covered"));
	buf_release(&t);
	processes_release(&ps);
}

/* At its first sample a fork has a block that it has not touched: its parent's memory explains the rest. */
TEST(coverage, fork_with_untouched_blocks)
{
	struct processes ps = {.host = true};
	struct frame_proc parent = {.pid = 7, .ppid = 1, .cmdline = "job"};
	struct frame_proc child = {.pid = 8, .ppid = 7, .cmdline = "job"};

	processes_add(&ps, &parent, "job");
	add_sample(&ps, 7, 58 * MIB, 58 * MIB, 49 * MIB, 49 * MIB);
	processes_add(&ps, &child, "job");
	ps.list[1].forked = true;
	add_sample(&ps, 8, 58 * MIB, 58 * MIB, 30 * MIB, 30 * MIB);
	CHECK_INT(ps.list[1].inherited, 50 * MIB);
	add_sample(&ps, 8, 88 * MIB, 88 * MIB, 30 * MIB, 30 * MIB);
	CHECK_INT(processes_coverage(&ps), COVERAGE_GOOD);
	processes_release(&ps);
}

/* Its samples may be of the program that came after it: their memory is not its own. */
TEST(coverage, replaced_program)
{
	struct processes ps = {.host = true};
	struct frame_proc proc = {.pid = 7, .ppid = 1};
	struct buf t = {0};

	processes_add(&ps, &proc, "shell");
	add_sample(&ps, 7, 100 * MIB, 100 * MIB, MIB, MIB);
	CHECK_INT(processes_coverage(&ps), COVERAGE_PARTIAL);
	processes_add(&ps, &proc, "job");
	CHECK_INT(processes_coverage(&ps), COVERAGE_UNKNOWN);
	add_sample(&ps, 7, 100 * MIB, 100 * MIB, 95 * MIB, 95 * MIB);
	CHECK_INT(processes_coverage(&ps), COVERAGE_GOOD);
	CHECK(!strstr(coverage_of(&ps, &t), "not covered"));
	buf_release(&t);
	processes_release(&ps);
}
