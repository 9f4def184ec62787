/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/config_changes.h"

#include "cli/daemon/daemon_options.h"
#include "test.h"

/* What compare says of two configurations, and the names it gives. */
static void check_parts(const struct daemon_config *a, const struct daemon_config *b,
			unsigned parts, const char *fixed)
{
	struct buf names = {0};

	CHECK_INT(reload_compare(a, b, &names), parts);
	CHECK_STR(buf_str(&names), fixed);
	buf_release(&names);
}

TEST(reload, nothing_differs)
{
	char text[] = "NO_CERTS";
	struct daemon_config a = {.options = daemon_option_table,
				  .port = 1,
				  .certs_dir = "NO_CERTS",
				  .binds = {"::1", "127.0.0.1"}};
	struct daemon_config b = a;

	b.certs_dir = text; /* the same words at another place */
	check_parts(&a, &b, 0, "");
}

TEST(reload, what_needs_a_restart_is_named)
{
	struct daemon_config a = {.options = daemon_option_table, .port = 1, .binds = {"::1"}};
	struct daemon_config b = a;

	b.port = 2;
	b.binds[1] = "127.0.0.1";
	b.ipc_socket_dir = "/run/sonde";
	check_parts(&a, &b, RELOAD_FIXED, "--port, --bind, --ipc-socket-dir");
	check_parts(&b, &a, RELOAD_FIXED, "--port, --bind, --ipc-socket-dir");
}

TEST(reload, takes_one_part)
{
	struct daemon_config a = {
		.options = daemon_option_table, .port = 1, .kernel_interval_s = 60};
	struct daemon_config b = {.options = daemon_option_table,
				  .port = 2,
				  .kernel_interval_s = 10,
				  .use_json = true,
				  .npu_monitor = DAEMON_AUTO,
				  .log_file = "log"};

	check_parts(&a, &b, RELOAD_FIXED | RELOAD_METRICS | RELOAD_LOG, "--port");
	reload_apply(&a, &b, RELOAD_METRICS);
	CHECK(a.kernel_interval_s == 10 && a.use_json && a.npu_monitor == DAEMON_AUTO);
	CHECK(a.port == 1 && !a.log_file);
	reload_apply(&a, &b, RELOAD_LOG);
	CHECK_STR(a.log_file, "log");
	check_parts(&a, &b, RELOAD_FIXED, "--port");
}
