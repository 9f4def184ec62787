/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The table of consumers, and calls to all of them in its order. */
#ifndef SONDE_RECORDER_CONSUMERS_H
#define SONDE_RECORDER_CONSUMERS_H

#include "recorder/consumer.h"

#include <stddef.h>

#define CONSUMERS_COUNT 5

/* Zero-initialised: none is open. */
struct consumers {
	struct consumer list[CONSUMERS_COUNT];
	size_t n; /* that are open */
};

int consumers_open(struct consumers *c, const struct recorder_session *s, struct err *err);
void consumers_close(struct consumers *c);

void consumers_dispatch(struct consumers *c, enum frame_type type, const void *payload,
			size_t bytes);
int consumers_rewrite(const char *recording, const struct buf *session, const char *below,
		      struct buf *report, struct err *err);

/* consumers_call(&c, tick, now_ns): the function of struct consumer_ops, where there is one. */
#define consumers_call(c, function, ...)                                                           \
	do {                                                                                       \
		for (struct consumer *one_ = (c)->list; one_ < (c)->list + (c)->n; one_++)         \
			if (one_->ops->function)                                                   \
				one_->ops->function(one_->state, ##__VA_ARGS__);                   \
	} while (0)

/* consumers_any(&c, is_amending): whether one says yes. */
#define consumers_any(c, question)                                                                 \
	({                                                                                         \
		bool any_ = false;                                                                 \
		for (struct consumer *one_ = (c)->list; one_ < (c)->list + (c)->n; one_++)         \
			any_ |= one_->ops->question && one_->ops->question(one_->state);           \
		any_;                                                                              \
	})

#endif
