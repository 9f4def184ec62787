/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the events of Chrome traces are to those who count, by their categories and arguments. */
#ifndef SONDE_TIMELINE_CHROME_ROLES_H
#define SONDE_TIMELINE_CHROME_ROLES_H

#include <jansson.h>

#include "timeline/timeline.h"

/* `out` has its name. Of a device without a number in `args` it is the given one. */
void chrome_role_of_device(const char *cat, const json_t *args, uint32_t device,
			   struct timeline_event *out);
/* without_end: its end is another event, as in traces of `sonde stack`. */
void chrome_role_of_host(const char *cat, bool without_end, const json_t *args, uint64_t thread,
			 struct timeline_event *out);

#endif
