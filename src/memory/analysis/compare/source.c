/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What was really compared: a directory may stand for a dump or for a recording. */
#include <string.h>
#include <sys/stat.h>

#include "base/text/printable.h"
#include "formats/json_value.h"
#include "memory/analysis/compare/compare_impl.h"

#define OTHER_RUN_S 2 /* the dump of a recording is closed sooner after it */

void compare_source_set(struct compare_source *s, struct input_paths *files, const char *recording)
{
	struct stat dump = {0}, st = {0};

	input_paths_release(&s->files);
	s->files = *files;
	*files = (struct input_paths){0};
	s->has_newer = false;
	if (s->recording || !s->files.n || !recording || !s->from_directory)
		return;
	struct buf file = {0};
	buf_addf(&file, "%s/events.sonde", recording);
	s->has_newer = stat(s->files.list[0], &dump) == 0 && stat(buf_str(&file), &st) == 0 &&
		       st.st_mtim.tv_sec > dump.st_mtim.tv_sec + OTHER_RUN_S;
	buf_clear(&s->newer);
	if (s->has_newer)
		text_add_printable(&s->newer, recording, strlen(recording));
	buf_release(&file);
}

void compare_source_release(struct compare_source *s)
{
	input_paths_release(&s->files);
	buf_release(&s->newer);
}

static void describe_source(const struct compare_source *s, const char *side, struct buf *out)
{
	if (!s->files.n)
		return;
	buf_addf(out, "%s: %s%s ", side, s->from_directory ? "the newest " : "the ",
		 s->recording ? "recording" : "dump");
	text_add_printable(out, s->files.list[0], strlen(s->files.list[0]));
	if (s->files.n > 1)
		buf_addf(out, ", and %zu of other devices of its process", s->files.n - 1);
	if (s->has_newer)
		buf_addf(out, "; the recording %s is newer and was not read: pass it to compare it",
			 s->newer.data);
	buf_add_char(out, '\n');
}

void compare_sources_text(const struct compare *c, struct buf *out)
{
	describe_source(&c->source[COMPARE_BASE], "Base", out);
	describe_source(&c->source[COMPARE_OTHER], "Compare", out);
}

static json_t *source_json(const struct compare_source *s)
{
	json_t *o = json_object(), *files = json_array();
	struct buf path = {0};

	for (size_t i = 0; i < s->files.n; i++) {
		buf_clear(&path);
		text_add_printable(&path, s->files.list[i], strlen(s->files.list[i]));
		json_array_append_new(files, json_string(buf_str(&path)));
	}
	buf_release(&path);
	put_text(o, "kind", s->recording ? "recording" : "dump");
	json_object_set_new(o, "files", files);
	put_text(o, "newer_recording", s->has_newer ? s->newer.data : NULL);
	return o;
}

void compare_sources_json(const struct compare *c, json_t *answer)
{
	json_t *o = json_object();

	json_object_set_new(o, "base", source_json(&c->source[COMPARE_BASE]));
	json_object_set_new(o, "compare", source_json(&c->source[COMPARE_OTHER]));
	json_object_set_new(answer, "inputs", o);
}
