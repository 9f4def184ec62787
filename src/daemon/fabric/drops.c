/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/fabric/drops.h"

#define LOG_AREA "fabric"
#include "base/log.h"

static const struct {
	const char *name; /* in JSON */
	const char *words; /* in the log; NULL: those of the fault */
} reasons[FABRIC_DROPS] = {
	[FABRIC_TOO_SHORT] = {"too_short", NULL},
	[FABRIC_WRONG_SIZE] = {"wrong_size", NULL},
	[FABRIC_BAD_TYPE] = {"bad_type", NULL},
	[FABRIC_BAD_PAYLOAD] = {"bad_payload", NULL},
	[FABRIC_DROP_EMPTY] = {"empty", "it has no bytes"},
	[FABRIC_DROP_TOO_LONG] = {"too_long", "it is too long"},
	[FABRIC_DROP_UNKNOWN_TYPE] = {"unknown_type", "its type is unknown"},
	[FABRIC_DROP_DESCRIPTORS] = {"descriptors", "it carries file descriptors"},
	[FABRIC_DROP_NO_CREDENTIALS] = {"no_credentials", "the kernel does not say who sent it"},
	[FABRIC_DROP_RATE] = {"rate_limited", "this user sends too many"},
	[FABRIC_DROP_BAD_JSON] = {"bad_json", "its data is not a good JSON object"},
	[FABRIC_DROP_REFUSED] =
		{"refused", "it speaks for another process, or this user has registered too many"},
};

void fabric_drop(struct fabric_drops *d, const struct jobs_sender *from, unsigned why)
{
	const char *words = reasons[why].words;

	if (d->counts[why]++)
		return;
	log_warn("dropped a datagram of process %d, user %u: %s; further ones are only counted",
		 (int)from->pid, (unsigned)from->uid,
		 words ? words : fabric_fault_text((enum fabric_fault)why));
}

json_t *fabric_drops_describe(const struct fabric_drops *d)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < FABRIC_DROPS; i++)
		if (reasons[i].name)
			json_object_set_new(o, reasons[i].name,
					    json_integer((json_int_t)d->counts[i]));
	return o;
}
