/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/record/finish.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text/printable.h"
#include "recorder/recover.h"
#include "recorder/session.h"

static void print_note(const struct command *cmd, const char *text)
{
	struct buf shown = {0};

	text_add_printable(&shown, text, strcspn(text, "\n"));
	fprintf(stderr, "%s: note: %s\n", cmd->spec.name, buf_str(&shown));
	buf_release(&shown);
}

static bool is_own_dir(const char *dir)
{
	struct stat st;

	return lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & S_IWOTH);
}

static bool is_killed(const char *dir)
{
	struct control_page page;

	return session_read(dir, &page, NULL) == 0 && page.magic == SESSION_MAGIC &&
	       page.record.on && page.state == SESSION_LIVE && !session_is_live(dir, &page);
}

static void finish(const struct command *cmd, const char *dir)
{
	const struct recover_options alone = {.recording_alone = true};
	struct buf report = {0};
	struct err err = {0};

	if (!is_own_dir(dir) || !is_killed(dir))
		return;
	print_note(cmd,
		   recover_recording(dir, &alone, &report, &err) < 0 ? err.text : buf_str(&report));
	buf_release(&report);
}

void record_finish_killed(const struct command *cmd, const char *path)
{
	DIR *d;

	finish(cmd, path);
	d = opendir(path);
	for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
		char *dir;

		if (strncmp(e->d_name, SESSION_PREFIX, strlen(SESSION_PREFIX)) != 0)
			continue;
		dir = xasprintf("%s/%s", path, e->d_name);
		finish(cmd, dir);
		free(dir);
	}
	if (d)
		closedir(d);
}
