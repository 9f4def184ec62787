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

enum expo_type { EXPO_GAUGE, EXPO_COUNTER };

struct expo_label {
	const char *name;
	const char *value; /* NULL: left out */
};

struct expo {
	struct expo_rows *families; /* in order of their first line */
	size_t nfamilies, families_cap;
	struct expo_row *rows;
	size_t n, cap;
	struct buf text; /* labels as printed, each ended by a NUL */
	struct hmap family_at; /* hash of the name -> family */
	struct hmap known; /* hash of family and labels: a series may stand there only once */
	struct buf scratch, clean;
	char host[256]; /* label host_name of every line */
};

/* What a family is; texts are borrowed until expo_print(). */
struct expo_family {
	const char *name; /* characters that are not allowed become '_' */
	enum expo_type type;
	const char *help;
};

void expo_init(struct expo *e);
void expo_add(struct expo *e, const struct expo_family *f, double value,
	      const struct expo_label *labels, size_t nlabels);

/* The same in two steps, for families that share their labels: thousands of long ones are printed
 * while clients of the daemon wait. */
size_t expo_labels(struct expo *e, const struct expo_label *labels, size_t nlabels);
void expo_add_at(struct expo *e, const struct expo_family *f, double value, size_t labels);

void expo_print(struct expo *e, struct buf *out);
void expo_release(struct expo *e);

#endif
