/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Collapsed stacks, a line for each as flame graph programs read them, and speedscope's JSON (its
 * "sampled" kind: every distinct stack once, with its weight).
 */
#include <stdlib.h>
#include <string.h>

#include "base/text/text.h"
#include "formats/json_value.h"
#include "formats/profile/profile_impl.h"

static const char *last_parts(const char *file)
{
	const char *at = file + strlen(file);

	for (unsigned slashes = 0; at > file; at--)
		if (at[-1] == '/' && ++slashes == 2)
			break;
	return at;
}

/* By hand, because most events of a timeline have one. */
void frame_label(char out[FRAME_LABEL_BYTES], const char *name, const char *file, int32_t line)
{
	char *p = put_bytes(out, name, strnlen(name, FRAME_LABEL_BYTES / 2));

	file = last_parts(file);
	if (*file) {
		p = put_bytes(p, " (", 2);
		p = put_bytes(p, file, strnlen(file, FRAME_LABEL_BYTES / 2 - 32));
		if (line > 0) {
			*p++ = ':';
			p = put_u64(p, (uint64_t)line);
		}
		*p++ = ')';
	}
	*p = '\0';
}

/* A part of a line: what separates parts and lines may not be in it. */
static void add_line_part(struct buf *out, const char *text, struct buf *scratch)
{
	size_t len = strlen(text);
	const char *s = text_clean(text, &len, scratch);
	char *p = buf_room(out, len);

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		p[i] = c == ';' ? ':' : c < ' ' || c == 127 ? ' ' : (char)c;
	}
	out->len += len;
}

static void add_place(const struct profile *p, uint32_t place, struct buf *out, struct buf *scratch)
{
	const struct profile_function *f = &p->functions[p->places[place].function];
	char label[FRAME_LABEL_BYTES];

	frame_label(label, f->name, f->file, p->places[place].line);
	add_line_part(out, label, scratch);
}

void profile_collapsed(const struct profile *p, struct buf *out)
{
	struct buf scratch = {0};
	struct profile_stack stack = {0};

	for (uint32_t i = 0; i < p->nnodes; i++) {
		const struct profile_root *root = &p->roots[p->nodes[i].root];

		if (!p->nodes[i].count)
			continue;
		profile_stack_of(p, i, &stack);
		if (root->process) {
			add_line_part(out, root->process, &scratch);
			buf_add_char(out, ';');
		}
		if (root->thread) {
			add_line_part(out, root->thread, &scratch);
			buf_add_char(out, ';');
		}
		for (uint32_t k = 0; k < stack.n; k++) {
			if (k)
				buf_add_char(out, ';');
			add_place(p, stack.places[k], out, &scratch);
		}
		buf_add_char(out, ' ');
		buf_add_u64(out, p->nodes[i].count);
		buf_add_char(out, '\n');
	}
	free(stack.places);
	buf_release(&scratch);
}

static void add_frames(const struct profile *p, struct buf *out, struct buf *scratch)
{
	for (uint32_t i = 0; i < p->nplaces; i++) {
		const struct profile_function *f = &p->functions[p->places[i].function];

		buf_add_str(out, i ? ",\n{\"name\":" : "\n{\"name\":");
		json_text_add(out, f->name, scratch);
		if (*f->file) {
			buf_add_str(out, ",\"file\":");
			json_text_add(out, f->file, scratch);
		}
		if (p->places[i].line > 0)
			buf_addf(out, ",\"line\":%d", p->places[i].line);
		buf_add_char(out, '}');
	}
}

static uint64_t weight(const struct profile *p, uint64_t count)
{
	return count * (p->o.period_ns ? p->o.period_ns : 1);
}

static void add_name(const struct profile_root *root, struct buf *out, struct buf *scratch)
{
	struct buf name = {0};

	buf_add_str(&name, root->process ? root->process : "");
	if (root->process && root->thread)
		buf_add_str(&name, ", ");
	buf_add_str(&name, root->thread ? root->thread : "");
	json_text_add(out, buf_str(&name), scratch);
	buf_release(&name);
}

/* The samples of one thread, their weights meanwhile in `weights`. */
static uint64_t add_samples(const struct profile *p, const struct profile_root *root,
			    struct buf *out, struct buf *weights)
{
	struct profile_stack stack = {0};
	uint64_t total = 0;

	for (uint32_t i = root->last_node; i != PROFILE_NONE; i = p->nodes[i].before) {
		if (!p->nodes[i].count)
			continue;
		profile_stack_of(p, i, &stack);
		buf_add_str(out, total ? ",[" : "[");
		for (uint32_t k = 0; k < stack.n; k++) {
			if (k)
				buf_add_char(out, ',');
			buf_add_u64(out, stack.places[k]);
		}
		buf_add_char(out, ']');
		if (total)
			buf_add_char(weights, ',');
		buf_add_u64(weights, weight(p, p->nodes[i].count));
		total += weight(p, p->nodes[i].count);
	}
	free(stack.places);
	return total;
}

static void add_profile(const struct profile *p, const struct profile_root *root, struct buf *out,
			struct buf *scratch)
{
	struct buf samples = {0}, weights = {0};
	uint64_t total = add_samples(p, root, &samples, &weights);

	buf_add_str(out, "{\"type\":\"sampled\",\"name\":");
	add_name(root, out, scratch);
	const char *unit = p->o.values	    ? p->o.values->title
			   : p->o.period_ns ? "nanoseconds"
					    : "none";
	buf_addf(out, ",\"unit\":\"%s\"", unit);
	buf_add_str(out, ",\"startValue\":0,\"endValue\":");
	buf_add_u64(out, total);
	buf_add_str(out, ",\"samples\":[");
	buf_add(out, samples.data, samples.len);
	buf_add_str(out, "],\"weights\":[");
	buf_add(out, weights.data, weights.len);
	buf_add_str(out, "]}");
	buf_release(&samples);
	buf_release(&weights);
}

void profile_speedscope(const struct profile *p, struct buf *out)
{
	struct buf scratch = {0};

	buf_add_str(out, "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
			 "\"shared\":{\"frames\":[");
	add_frames(p, out, &scratch);
	buf_add_str(out, "]},\n\"profiles\":[");
	for (uint32_t i = 0; i < p->nroots; i++) {
		buf_add_str(out, i ? ",\n" : "\n");
		add_profile(p, &p->roots[i], out, &scratch);
	}
	buf_add_str(out, "],\n\"name\":");
	json_text_add(out, p->o.title, &scratch);
	buf_add_str(out, ",\"activeProfileIndex\":0,\"exporter\":\"sonde " SONDE_VERSION "\"}\n");
	buf_release(&scratch);
}
