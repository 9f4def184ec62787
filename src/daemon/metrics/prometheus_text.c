/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics/prometheus_text.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/mem.h"
#include "base/text/text.h"

#define EXACT 9007199254740992.0 /* 2^53: whole numbers up to here are exact */

struct prom_row {
	size_t labels; /* in the text, with braces */
	size_t next; /* of its family; NO_ROW: none */
	double value;
};
#define NO_ROW SIZE_MAX

struct prom_rows {
	char *name;
	enum prom_type type;
	const char *help;
	size_t first, last;
};

void prom_init(struct prom_text *e)
{
	*e = (struct prom_text){0};
	if (gethostname(e->host, sizeof(e->host) - 1) < 0)
		e->host[0] = '\0';
}

/* Adds the text as a name: what is not allowed becomes '_'. */
static void add_name(struct buf *b, const char *text)
{
	size_t at = b->len;

	buf_add_str(b, *text ? text : "_");
	for (char *c = b->data + at; c < b->data + b->len; c++)
		if (!isalnum((unsigned char)*c) && *c != '_' && *c != ':')
			*c = '_';
	if (isdigit((unsigned char)b->data[at]))
		b->data[at] = '_';
}

static void add_label(struct prom_text *e, const char *name, const char *value)
{
	size_t len = strlen(value);
	const char *at = text_clean(value, &len, &e->scratch), *end = at + len;

	if (buf_str(&e->text)[e->text.len - 1] != '{')
		buf_add_char(&e->text, ',');
	add_name(&e->text, name);
	buf_add_str(&e->text, "=\"");
	while (at < end) {
		size_t plain = 0;

		while (at + plain < end && !strchr("\n\"\\", at[plain]))
			plain++;
		buf_add(&e->text, at, plain);
		at += plain;
		if (at < end) {
			buf_add_char(&e->text, '\\');
			buf_add_char(&e->text, *at == '\n' ? 'n' : *at);
			at++;
		}
	}
	buf_add_char(&e->text, '"');
}

size_t prom_labels(struct prom_text *e, const struct prom_label *labels, size_t nlabels)
{
	size_t at = e->text.len;

	buf_add_char(&e->text, '{');
	for (size_t i = 0; i < nlabels; i++)
		if (labels[i].value)
			add_label(e, labels[i].name, labels[i].value);
	if (*e->host)
		add_label(e, "host_name", e->host);
	if (e->text.len == at + 1)
		e->text.len = at; /* none at all */
	else
		buf_add_char(&e->text, '}');
	buf_add_char(&e->text, '\0');
	return at;
}

static size_t family_of(struct prom_text *e, const struct prom_family *f)
{
	buf_clear(&e->clean);
	add_name(&e->clean, f->name);
	uint64_t key = XXH3_64bits(e->clean.data, e->clean.len);
	uint64_t at = hmap_get(&e->family_at, key);
	if (at != HMAP_NONE)
		return (size_t)at;
	e->families = xgrow(e->families, &e->families_cap, e->nfamilies + 1, sizeof(*e->families));
	e->families[e->nfamilies] = (struct prom_rows){
		.name = xstrndup(e->clean.data, e->clean.len),
		.type = f->type,
		.help = f->help,
		.first = NO_ROW,
		.last = NO_ROW,
	};
	hmap_put(&e->family_at, key, e->nfamilies);
	return e->nfamilies++;
}

void prom_add_at(struct prom_text *e, const struct prom_family *f, double value, size_t labels)
{
	size_t at = family_of(e, f);
	const char *text = e->text.data + labels;

	/* two names may have become one */
	if (hmap_put(&e->known, XXH3_64bits_withSeed(text, strlen(text), at), 1) != HMAP_NONE)
		return;
	e->rows = xgrow(e->rows, &e->cap, e->n + 1, sizeof(*e->rows));
	e->rows[e->n] = (struct prom_row){.labels = labels, .next = NO_ROW, .value = value};
	struct prom_rows *rows = &e->families[at];
	if (rows->first == NO_ROW)
		rows->first = e->n;
	else
		e->rows[rows->last].next = e->n;
	rows->last = e->n++;
}

void prom_add(struct prom_text *e, const struct prom_family *f, double value,
	      const struct prom_label *labels, size_t nlabels)
{
	prom_add_at(e, f, value, prom_labels(e, labels, nlabels));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct prom_rows *)a)->name, ((const struct prom_rows *)b)->name);
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

void prom_print(struct prom_text *e, struct buf *out)
{
	if (e->nfamilies)
		qsort(e->families, e->nfamilies, sizeof(*e->families), by_name);
	for (size_t i = 0; i < e->nfamilies; i++) {
		const struct prom_rows *f = &e->families[i];
		size_t len = strlen(f->name);

		buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name,
			 f->type == PROM_COUNTER ? "counter" : "gauge");
		for (size_t at = f->first; at != NO_ROW; at = e->rows[at].next) {
			buf_add(out, f->name, len);
			buf_add_str(out, e->text.data + e->rows[at].labels);
			buf_add_char(out, ' ');
			print_value(out, e->rows[at].value);
			buf_add_char(out, '\n');
		}
	}
}

void prom_release(struct prom_text *e)
{
	for (size_t i = 0; i < e->nfamilies; i++)
		free(e->families[i].name);
	free(e->families);
	free(e->rows);
	buf_release(&e->text);
	buf_release(&e->scratch);
	buf_release(&e->clean);
	hmap_release(&e->family_at);
	hmap_release(&e->known);
	*e = (struct prom_text){0};
}
