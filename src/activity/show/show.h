/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What sonde activity show says: the answer first, then the tables; or the same as JSON. */
#ifndef SONDE_ACTIVITY_SHOW_SHOW_H
#define SONDE_ACTIVITY_SHOW_SHOW_H

#include <jansson.h>

#include "activity/read/totals.h"
#include "base/containers/buf.h"

/* `top`: names in each table. The sum is finished. */
void activity_show_text(const struct activity_sum *s, unsigned top, struct buf *out);
json_t *activity_show_json(const struct activity_sum *s, unsigned top); /* new */

/* --by module or line. */
struct show_by {
	unsigned by; /* enum owners_by */
	unsigned depth;
};
void activity_owners_text(const struct activity_sum *s, const struct show_by *by, unsigned top,
			  struct buf *out);
json_t *activity_owners_json(const struct activity_sum *s, const struct show_by *by, unsigned top);

#endif
