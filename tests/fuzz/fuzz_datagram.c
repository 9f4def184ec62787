/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The datagrams of the fabric, as the daemon takes them: the bytes as they are, and the same with
 * the size put right, so that payloads are reached. Every byte that a message gives is touched;
 * JSON of data messages is parsed.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/fabric/fabric.h"
#include "wire/fabric.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int64_t sum_request(const struct fabric_message *m)
{
	int64_t sum = m->request->mask ^ m->request->job_id;

	BUG_ON(!m->npids || m->npids > FABRIC_MAX_PIDS);
	for (unsigned i = 0; i < m->npids; i++)
		sum ^= m->request->pids[i];
	return sum;
}

static int64_t sum_bytes(const char *p, size_t n)
{
	int64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += p[i];
	return sum;
}

static int64_t parse(const void *datagram, size_t len)
{
	struct fabric_message m;
	enum fabric_fault fault = fabric_parse(datagram, len, &m);

	BUG_ON(!fabric_fault_text(fault)[0]);
	if (fault != FABRIC_OK)
		return 0;
	BUG_ON(m.payload_bytes != len - sizeof(struct fabric_header));
	BUG_ON(strlen(m.type) >= FABRIC_TYPE_BYTES);
	switch (m.kind) {
	case FABRIC_CONTEXT:
		return m.context.gpu ^ m.context.pid ^ m.context.job_id;
	case FABRIC_REQUEST:
		return sum_request(&m);
	case FABRIC_TRACE_STATUS:
	case FABRIC_MONITOR_STATUS:
		return m.status.state ^ m.status.current_step ^ m.status.job_id;
	case FABRIC_DATA:
		json_decref(fabric_data_parse(m.payload, m.payload_bytes));
		break;
	case FABRIC_OTHER:
		break;
	}
	return sum_bytes(m.payload, m.payload_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* In memory of its exact length, so that a step beyond it shows. */
	char *copy = xmalloc(size ? size : 1);
	static volatile int64_t sum;

	if (size)
		memcpy(copy, data, size);
	sum ^= parse(copy, size);
	if (size >= sizeof(struct fabric_header)) {
		((struct fabric_header *)copy)->size = size - sizeof(struct fabric_header);
		copy[sizeof(struct fabric_header) - 1] = '\0';
		sum ^= parse(copy, size);
	}
	(void)sum;
	free(copy);
	return 0;
}
