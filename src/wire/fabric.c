/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "wire/fabric.h"

#include <errno.h>
#include <string.h>

/* Senders of today compare types by these beginnings, in this order. */
static const struct {
	const char *prefix;
	enum fabric_kind kind;
} kinds[] = {
	{"ctxt", FABRIC_CONTEXT},
	{"req", FABRIC_REQUEST},
	{"npuTraceStatus", FABRIC_TRACE_STATUS},
	{"npuMonitorStatus", FABRIC_MONITOR_STATUS},
	{"data", FABRIC_DATA},
};

static enum fabric_kind kind_of(const char *type)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strncmp(type, kinds[i].prefix, strlen(kinds[i].prefix)))
			return kinds[i].kind;
	return FABRIC_OTHER;
}

static enum fabric_fault parse_request(struct fabric_message *m)
{
	const struct fabric_request *r = (const void *)m->payload;

	if (m->payload_bytes < sizeof(*r) || r->npids <= 0)
		return FABRIC_BAD_PAYLOAD;
	unsigned n = r->npids > FABRIC_MAX_PIDS ? FABRIC_MAX_PIDS : (unsigned)r->npids;
	if (m->payload_bytes - sizeof(*r) < n * sizeof(r->pids[0]))
		return FABRIC_BAD_PAYLOAD;
	m->request = r;
	m->npids = n;
	return FABRIC_OK;
}

/* Longer than known is taken: what senders may add comes at the end. */
static enum fabric_fault parse_status(struct fabric_message *m)
{
	struct fabric_status_short s;

	if (m->payload_bytes >= sizeof(m->status)) {
		memcpy(&m->status, m->payload, sizeof(m->status));
		return FABRIC_OK;
	}
	if (m->payload_bytes != sizeof(s))
		return FABRIC_BAD_PAYLOAD;
	memcpy(&s, m->payload, sizeof(s));
	m->status = (struct fabric_status){.state = s.state,
					   .current_step = -1,
					   .start_step = -1,
					   .stop_step = -1,
					   .pid = s.pid,
					   .job_id = s.job_id};
	return FABRIC_OK;
}

static enum fabric_fault parse_payload(struct fabric_message *m)
{
	switch (m->kind) {
	case FABRIC_CONTEXT:
		if (m->payload_bytes < sizeof(m->context))
			return FABRIC_BAD_PAYLOAD;
		memcpy(&m->context, m->payload, sizeof(m->context));
		return FABRIC_OK;
	case FABRIC_REQUEST:
		return parse_request(m);
	case FABRIC_TRACE_STATUS:
	case FABRIC_MONITOR_STATUS:
		return parse_status(m);
	case FABRIC_DATA:
	case FABRIC_OTHER:
		break;
	}
	return FABRIC_OK;
}

/* A size that does not fit is refused, not cut: a datagram is whole or it is nothing. `out` is
 * written only when all is well. */
enum fabric_fault fabric_parse(const void *datagram, size_t len, struct fabric_message *out)
{
	const struct fabric_header *h = datagram;
	struct fabric_message m = {0};

	if (len < sizeof(*h))
		return FABRIC_TOO_SHORT;
	if (h->size != len - sizeof(*h))
		return FABRIC_WRONG_SIZE;
	if (!memchr(h->type, '\0', sizeof(h->type)))
		return FABRIC_BAD_TYPE;
	m.kind = kind_of(h->type);
	m.type = h->type;
	m.payload = (const char *)(h + 1);
	m.payload_bytes = len - sizeof(*h);
	enum fabric_fault fault = parse_payload(&m);
	if (fault == FABRIC_OK)
		*out = m;
	return fault;
}

const char *fabric_fault_text(enum fabric_fault fault)
{
	switch (fault) {
	case FABRIC_OK:
		return "nothing is wrong";
	case FABRIC_TOO_SHORT:
		return "it is shorter than a header";
	case FABRIC_WRONG_SIZE:
		return "it claims another size than it has";
	case FABRIC_BAD_TYPE:
		return "its type has no end";
	case FABRIC_BAD_PAYLOAD:
		return "its payload is not one of its type";
	case FABRIC_FAULTS:
		break;
	}
	return "unknown";
}

void fabric_header_init(struct fabric_header *h, const char *type, size_t payload_bytes)
{
	memset(h, 0, sizeof(*h));
	h->size = payload_bytes;
	memcpy(h->type, type, strnlen(type, sizeof(h->type) - 1));
}

int fabric_abstract_address(const char *name, struct sockaddr_un *out, socklen_t *out_len)
{
	size_t n = strlen(name);

	if (n + 2 > sizeof(out->sun_path))
		return -ENAMETOOLONG;
	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	memcpy(out->sun_path + 1, name, n);
	*out_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 2);
	return 0;
}

int fabric_path_address(const char *path, struct sockaddr_un *out, socklen_t *out_len)
{
	size_t n = strlen(path);

	if (!n || n + 1 > sizeof(out->sun_path))
		return n ? -ENAMETOOLONG : -EINVAL;
	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	memcpy(out->sun_path, path, n);
	*out_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
	return 0;
}
