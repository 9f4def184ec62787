/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The text format of Prometheus: lines are added in any order and printed by family, each once with
 * its help and type. Names and texts may come from anywhere; what is printed is valid.
 */
#ifndef SONDE_DAEMON_METRICS_PROMETHEUS_TEXT_H
#define SONDE_DAEMON_METRICS_PROMETHEUS_TEXT_H

#include <stddef.h>

#include "base/containers/buf.h"
#include "base/containers/hmap.h"

enum prom_type { PROM_GAUGE, PROM_COUNTER };

struct prom_label {
	const char *name;
	const char *value; /* NULL: left out */
};

struct prom_text {
	struct prom_rows *families; /* in order of their first line */
	size_t nfamilies, families_cap;
	struct prom_row *rows;
	size_t n, cap;
	struct buf text; /* labels as printed, each ended by a NUL */
	struct hmap family_at; /* hash of the name -> family */
	struct hmap known; /* hash of family and labels: a series may stand there only once */
	struct buf scratch, clean;
	char host[256]; /* label host_name of every line */
};

/* What a family is; texts are borrowed until prom_print(). */
struct prom_family {
	const char *name; /* characters that are not allowed become '_' */
	enum prom_type type;
	const char *help;
};

void prom_init(struct prom_text *e);
void prom_add(struct prom_text *e, const struct prom_family *f, double value,
	      const struct prom_label *labels, size_t nlabels);

/* The same in two steps, for families that share their labels: thousands of long ones are printed
 * while clients of the daemon wait. */
size_t prom_labels(struct prom_text *e, const struct prom_label *labels, size_t nlabels);
void prom_add_at(struct prom_text *e, const struct prom_family *f, double value, size_t labels);

void prom_print(struct prom_text *e, struct buf *out);
void prom_release(struct prom_text *e);

#endif
