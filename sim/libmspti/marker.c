/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Marker domains that are off, and ids of others that calls are to be correlated with. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

#define MAX_EXTERNAL 128

struct domain {
	struct domain *next;
	char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct domain *disabled;

static struct domain **find(const char *name)
{
	struct domain **at = &disabled;
	while (*at && strcmp((*at)->name, name))
		at = &(*at)->next;
	return at;
}

/* All are on until somebody says otherwise, also those that nobody has made yet. */
int marker_wants_domain(const char *name)
{
	pthread_mutex_lock(&lock);
	int on = !*find(name ? name : "default");
	pthread_mutex_unlock(&lock);
	return on;
}

msptiResult msptiActivityEnableMarkerDomain(const char *name)
{
	if (!name)
		return MSPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	struct domain **at = find(name);
	struct domain *d = *at;
	if (d) {
		*at = d->next;
		free(d);
	}
	pthread_mutex_unlock(&lock);
	return MSPTI_SUCCESS;
}

msptiResult msptiActivityDisableMarkerDomain(const char *name)
{
	if (!name)
		return MSPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	struct domain **at = find(name);
	struct domain *d = *at ? NULL : malloc(sizeof(*d) + strlen(name) + 1);
	msptiResult r = *at || d ? MSPTI_SUCCESS : MSPTI_ERROR_INNER;
	if (d) {
		d->next = NULL;
		strcpy(d->name, name);
		*at = d;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static __thread struct {
	uint64_t id[MAX_EXTERNAL];
	int depth;
} external[MSPTI_EXTERNAL_CORRELATION_KIND_SIZE];

static int is_external(msptiExternalCorrelationKind kind)
{
	return kind > MSPTI_EXTERNAL_CORRELATION_KIND_INVALID &&
	       kind < MSPTI_EXTERNAL_CORRELATION_KIND_SIZE;
}

msptiResult msptiActivityPushExternalCorrelationId(msptiExternalCorrelationKind kind, uint64_t id)
{
	if (!is_external(kind))
		return MSPTI_ERROR_INVALID_PARAMETER;
	if (external[kind].depth == MAX_EXTERNAL)
		return MSPTI_ERROR_MAX_LIMIT_REACHED;
	external[kind].id[external[kind].depth++] = id;
	return MSPTI_SUCCESS;
}

msptiResult msptiActivityPopExternalCorrelationId(msptiExternalCorrelationKind kind,
						  uint64_t *lastId)
{
	if (!is_external(kind))
		return MSPTI_ERROR_INVALID_PARAMETER;
	if (!external[kind].depth)
		return MSPTI_ERROR_QUEUE_EMPTY;
	uint64_t id = external[kind].id[--external[kind].depth];
	if (lastId)
		*lastId = id;
	return MSPTI_SUCCESS;
}

void external_note(uint64_t correlation)
{
	for (int kind = 1; kind < MSPTI_EXTERNAL_CORRELATION_KIND_SIZE; kind++) {
		if (!external[kind].depth)
			continue;
		msptiActivityExternalCorrelation r = {
			.kind = MSPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
			.externalKind = kind,
			.externalId = external[kind].id[external[kind].depth - 1],
			.correlationId = correlation};
		(void)buffer_put(&r, sizeof(r));
	}
}
