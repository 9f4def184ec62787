/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Device time as a part of the model: of traces of steps and of files of activities, for every device of
 * every rank how much of each step, or of each piece of time, went to compute, communication, copies,
 * idleness; and the kernels.
 */
#ifndef SONDE_REPORT_ACTIVITIES_H
#define SONDE_REPORT_ACTIVITIES_H

#include <jansson.h>

#include "base/err.h"
#include "report/pack.h"

/* Adds what lies at the path to the list. `number` is that of the first to be added; returns how many
 * there are, or -ENOENT: none. */
int activities_add(json_t *list, unsigned number, const char *path, struct pack *pack,
		   struct err *err);

#endif
