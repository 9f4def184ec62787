/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics_expo.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "export/text.h"

#define EXACT 9007199254740992.0 /* 2^53: whole numbers up to here are exact */

struct expo_row {
	char *name;
	char *labels; /* as printed, with braces */
	enum expo_type type;
	const char *help;
	double value;
};

void expo_init(struct expo *e)
{
	*e = (struct expo){0};
	if (gethostname(e->host, sizeof(e->host) - 1) < 0)
		e->host[0] = '\0';
}

static char *name_of(const char *text)
{
	char *name = xstrdup(*text ? text : "_");

	for (char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '_' && *c != ':')
			*c = '_';
	if (isdigit((unsigned char)*name))
		*name = '_';
	return name;
}

static void add_label(struct buf *b, const char *name, const char *value)
{
	struct buf scratch = {0};
	char *clean_name = name_of(name);
	size_t len = strlen(value);
	const char *clean = text_clean(value, &len, &scratch);

	buf_addf(b, "%s%s=\"", b->len > 1 ? "," : "", clean_name);
	for (size_t i = 0; i < len; i++) {
		if (clean[i] == '\n')
			buf_add_str(b, "\\n");
		else if (clean[i] == '"' || clean[i] == '\\')
			buf_addf(b, "\\%c", clean[i]);
		else
			buf_add_char(b, clean[i]);
	}
	buf_add_char(b, '"');
	buf_release(&scratch);
	free(clean_name);
}

void expo_add(struct expo *e, const struct expo_family *f, double value,
	      const struct expo_label *labels, size_t nlabels)
{
	struct buf b = {0};

	buf_add_char(&b, '{');
	for (size_t i = 0; i < nlabels; i++)
		if (labels[i].value)
			add_label(&b, labels[i].name, labels[i].value);
	if (*e->host)
		add_label(&b, "host_name", e->host);
	buf_add_char(&b, '}');
	e->rows = xgrow(e->rows, &e->cap, e->n + 1, sizeof(*e->rows));
	e->rows[e->n++] = (struct expo_row){
		.name = name_of(f->name),
		.labels = xstrdup(b.len > 2 ? buf_str(&b) : ""),
		.type = f->type,
		.help = f->help,
		.value = value,
	};
	buf_release(&b);
}

static int compare(const void *a, const void *b)
{
	const struct expo_row *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c ? c : strcmp(x->labels, y->labels);
}

static void print_value(struct buf *out, double v)
{
	if (isnan(v))
		buf_add_str(out, "NaN");
	else if (isinf(v))
		buf_add_str(out, v > 0 ? "+Inf" : "-Inf");
	else if (v == floor(v) && fabs(v) < EXACT)
		buf_addf(out, "%.0f", v);
	else
		buf_addf(out, "%.9g", v);
}

void expo_print(struct expo *e, struct buf *out)
{
	const struct expo_row *before = NULL;

	if (e->n)
		qsort(e->rows, e->n, sizeof(*e->rows), compare);
	for (size_t i = 0; i < e->n; i++) {
		const struct expo_row *r = &e->rows[i];
		bool known = before && !strcmp(before->name, r->name);

		if (known && !strcmp(before->labels, r->labels))
			continue; /* two names became one: a series may stand there only once */
		if (!known)
			buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", r->name, r->help, r->name,
				 r->type == EXPO_COUNTER ? "counter" : "gauge");
		buf_addf(out, "%s%s ", r->name, r->labels);
		print_value(out, r->value);
		buf_add_char(out, '\n');
		before = r;
	}
}

void expo_release(struct expo *e)
{
	for (size_t i = 0; i < e->n; i++) {
		free(e->rows[i].name);
		free(e->rows[i].labels);
	}
	free(e->rows);
	*e = (struct expo){0};
}
