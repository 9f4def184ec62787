/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/monitor_session.h"

#include "base/mem.h"
#include "recorder/mem_config.h"
#include "wire/session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool is_monitor_session(const char *dir)
{
	const char *slash = strrchr(dir, '/');

	return slash && !strncmp(slash + 1, SESSION_MONITOR_PREFIX, strlen(SESSION_MONITOR_PREFIX));
}

/* Only what we know to be ours; anything else stays, and the directory with it. */
void monitor_session_remove(const char *dir)
{
	static const char *const names[] = {SESSION_FILE, SESSION_REPORT, MEM_CONFIG_FILE,
					    MEM_LOG_FILE};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *path = xasprintf("%s/%s", dir, names[i]);
		unlink(path);
		free(path);
	}
	rmdir(dir);
}
