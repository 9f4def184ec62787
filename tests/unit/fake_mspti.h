/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A library with the interface of MSPTI, for tests: what is put into its buffer is what it has
 * recorded. Its cursor behaves like that of the real one.
 */
#ifndef SONDE_TESTS_UNIT_FAKE_MSPTI_H
#define SONDE_TESTS_UNIT_FAKE_MSPTI_H

#include "device/ascend/activity/mspti.h"

#include <string.h>

#define FAKE_OVERHEAD 13 /* a kind of newer versions, of 40 bytes */
#define FAKE_UNKNOWN_KIND 7 /* result for a kind that the library itself does not know */

static struct {
	mspti_request_fn request;
	mspti_complete_fn complete;
	uint64_t calls; /* that are called back for */
	bool no_calls; /* it was not preloaded */
	bool subscribed, other_subscriber;
	uint32_t enabled, unpreloaded, unknown;
	int own_marks; /* of its own domain: off, if negative */
	uint8_t *buffer;
	size_t size, valid;
	size_t dropped;
} fake;

static int fake_subscribe(void **out, void *callback, void *arg)
{
	(void)callback;
	(void)arg;
	if (fake.subscribed || fake.other_subscriber)
		return MSPTI_OTHER_SUBSCRIBER;
	fake.subscribed = true;
	*out = &fake;
	return MSPTI_OK;
}

static int fake_unsubscribe(void *subscriber)
{
	if (subscriber != &fake)
		return MSPTI_INVALID;
	fake.subscribed = false;
	return MSPTI_OK;
}

static int fake_register(mspti_request_fn request, mspti_complete_fn complete)
{
	fake.request = request;
	fake.complete = complete;
	return request && complete ? MSPTI_OK : MSPTI_INVALID;
}

static int fake_enable(int kind)
{
	if (fake.unpreloaded & ACTIVITY_BIT(kind))
		return MSPTI_NO_PRELOAD;
	if (fake.unknown & ACTIVITY_BIT(kind))
		return MSPTI_INVALID;
	fake.enabled |= ACTIVITY_BIT(kind);
	return MSPTI_OK;
}

static int fake_disable(int kind)
{
	fake.enabled &= ~ACTIVITY_BIT(kind);
	return MSPTI_OK;
}

static size_t fake_record_size(int32_t kind)
{
	static const size_t sizes[] = {0, 56, 56, 48, 56, 64, 56, 56, 24, 72, 48, 48, 48, 40};

	return kind > 0 && kind <= FAKE_OVERHEAD ? sizes[kind] : 0;
}

static inline int fake_next(uint8_t *buffer, size_t valid, void **record)
{
	static __thread size_t at;
	int32_t kind;

	if (at >= valid) {
		at = 0;
		return MSPTI_END;
	}
	if (valid - at < sizeof(kind))
		return FAKE_UNKNOWN_KIND;
	memcpy(&kind, buffer + at, sizeof(kind));
	if (!fake_record_size(kind))
		return FAKE_UNKNOWN_KIND;
	*record = buffer + at;
	at += fake_record_size(kind);
	return MSPTI_OK;
}

/* The buffer goes back, by whoever calls. */
static inline void fake_retire(void)
{
	uint8_t *b = fake.buffer;

	if (fake.size)
		fake.complete(b, fake.size, fake.valid);
	fake.buffer = NULL;
	fake.size = fake.valid = 0;
}

static int fake_flush(uint32_t flag)
{
	(void)flag;
	fake_retire();
	return MSPTI_OK;
}

static int fake_enable_domain(const char *name)
{
	fake.own_marks += !strcmp(name, "communication");
	return MSPTI_OK;
}

static int fake_disable_domain(const char *name)
{
	fake.own_marks -= !strcmp(name, "communication");
	return MSPTI_OK;
}

static int fake_dropped(void *context, uint32_t stream, size_t *out)
{
	(void)context;
	(void)stream;
	*out = fake.dropped;
	fake.dropped = 0;
	return MSPTI_OK;
}

static int fake_enable_call(uint32_t on, void *subscriber, int domain, uint32_t call)
{
	if (subscriber != &fake || domain != MSPTI_CALLS_RUNTIME || !fake.subscribed)
		return MSPTI_INVALID;
	if (fake.no_calls)
		return MSPTI_NO_PRELOAD;
	if (on)
		fake.calls |= 1ull << call;
	else
		fake.calls &= ~(1ull << call);
	return MSPTI_OK;
}

static const struct mspti fake_fns = {
	fake_subscribe,	     fake_unsubscribe, fake_register,	 fake_enable,
	fake_disable,	     fake_next,	       fake_flush,	 fake_enable_domain,
	fake_disable_domain, fake_dropped,     fake_enable_call,
};

/* Notes a record as the library does, kinds that are off included. */
static inline void fake_put(const void *record, size_t size)
{
	size_t most;

	if (!fake.size)
		fake.request(&fake.buffer, &fake.size, &most);
	if (!fake.buffer || fake.size - fake.valid < size) {
		fake.dropped++;
		return;
	}
	memcpy(fake.buffer + fake.valid, record, size);
	fake.valid += size;
}

#define FAKE_PUT(...)                                                                              \
	do {                                                                                       \
		__auto_type record_ = (__VA_ARGS__);                                               \
		fake_put(&record_, sizeof(record_));                                               \
	} while (0)

#endif
