/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/sandbox/sandbox_impl.h"
#include "test.h"

TEST(broker_process, files_of_processes)
{
	CHECK(broker_is_process_file("/proc/1/environ"));
	CHECK(broker_is_process_file("/proc/4194304/cmdline"));
	CHECK(broker_is_process_file("/proc/7/ns/pid"));
	static const char *const others[] = {
		"",
		"/",
		"/proc/",
		"/proc/1",
		"/proc/1/",
		"/proc//environ",
		"/proc/self/environ",
		"/proc/1/mem",
		"/proc/1/maps",
		"/proc/1/environ/",
		"/proc/1/environ/../mem",
		"/proc/1/../../etc/shadow",
		"/proc/1/root/etc/shadow",
		"/proc/1/cwd/environ",
		"/proc/1/fd/3",
		"/proc/12345678901/environ",
		"/proc/-1/environ",
		"/proc/1 /environ",
		"//proc/1/environ",
		"proc/1/environ",
		"/etc/shadow",
	};
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (broker_is_process_file(others[i]))
			CHECK_STR(others[i], "");
}
