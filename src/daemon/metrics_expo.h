/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The text format of Prometheus: lines are added in any order and printed by family, each once with
 * its help and type. Names and texts may come from anywhere; what is printed is valid.
 */
#ifndef SONDE_DAEMON_METRICS_EXPO_H
#define SONDE_DAEMON_METRICS_EXPO_H

#include <stddef.h>

#include "base/buf.h"

enum expo_type { EXPO_GAUGE, EXPO_COUNTER };

struct expo_label {
	const char *name;
	const char *value; /* NULL: left out */
};

struct expo {
	struct expo_row *rows;
	size_t n, cap;
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
void expo_print(struct expo *e, struct buf *out);
void expo_release(struct expo *e);

#endif
