/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/user_limit.h"

#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "test.h"
#include "tmpdir.h"

TEST(user_limit, a_user_who_floods_leaves_others_theirs)
{
	struct event_base *base = event_base_new();
	struct buf text = {0};

	CHECK(base && event_base_priority_init(base, DAEMON_PRIORITIES) == 0);
	char log[96];
	snprintf(log, sizeof(log), "%s/log", tmpdir());
	CHECK(log_open(log, NULL) == 0);
	struct user_limit *l = user_limit_new(base, "lines", 1, 10);
	unsigned good = 0;
	for (int i = 0; i < 1000; i++)
		good += user_limit_take(l, 7);
	CHECK(good >= 10 && good <= 12);
	for (uid_t uid = 100; uid < 3000; uid++) /* more than are told apart */
		(void)user_limit_take(l, uid);
	CHECK(user_limit_take(l, 8) || user_limit_suppressed(l) > 1000);
	CHECK(user_limit_suppressed(l) >= 988);
	user_limit_free(l);
	CHECK(user_limit_take(NULL, 7) && !user_limit_suppressed(NULL));
	log_close();
	CHECK(fs_read_file(log, 1 << 20, &text, NULL) == 0);
	const char *said = strstr(buf_str(&text), "user 7 causes too many lines");
	CHECK(said && !strstr(said + 1, "user 7 causes too many lines"));
	CHECK(strstr(buf_str(&text), " lines of user 7 suppressed"));
	CHECK(strstr(buf_str(&text), " lines of further users suppressed"));
	buf_release(&text);
	event_base_free(base);
}
