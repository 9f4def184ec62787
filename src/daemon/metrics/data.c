/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What monitors inside processes report: one JSON object for each kind of activity and device, with
 * the time spent in an interval. Anybody may send anything: types and lengths are checked, and how
 * many domains are distinguished is limited by the store.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/number_read.h"
#include "daemon/metrics/metrics_impl.h"

#define LOG_AREA "metrics"
#include "base/log.h"

/* In bytes: these are distinguished, kept and shown to everybody. */
#define MAX_KIND 64
#define MAX_DOMAIN 128
#define MAX_NAME 256
#define MAX_DEVICE 65535

/* Senders write -1, or that as 32 or 64 bits without a sign, for what happens on no device. */
static int device_of(const json_t *v, int64_t *out)
{
	int64_t n;

	if (json_is_integer(v)) {
		n = json_integer_value(v);
	} else if (json_is_string(v)) {
		const char *text = json_string_value(v);

		if (!strcmp(text, "18446744073709551615") || !strcmp(text, "host"))
			text = "-1";
		if (!number_read(text, strlen(text), &n))
			return -EINVAL;
	} else if (json_is_real(v)) {
		/* 2^64 - 1 does not fit an integer of the JSON library */
		if (json_real_value(v) != 18446744073709551615.0)
			return -EINVAL;
		n = -1;
	} else {
		return -EINVAL;
	}
	if (n == -1 || n == 4294967295)
		*out = SAMPLE_NO_DEVICE;
	else if (n >= 0 && n <= MAX_DEVICE)
		*out = n;
	else
		return -ERANGE;
	return 0;
}

static int unsigned_of(const json_t *v, uint64_t *out)
{
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return -EINVAL;
	*out = (uint64_t)json_integer_value(v);
	return 0;
}

/* NULL: not there, or nothing that could be shown. */
static const char *text_of(const json_t *record, const char *key, size_t max)
{
	const json_t *v = json_object_get(record, key);

	if (!json_is_string(v) || json_string_length(v) > max ||
	    strlen(json_string_value(v)) != json_string_length(v))
		return NULL;
	return json_string_value(v);
}

static struct metric text_metric(const char *name, const char *value)
{
	return (struct metric){.name = name, .type = METRIC_TEXT, .s = value};
}

static struct metric number_metric(const char *name, uint64_t value)
{
	return (struct metric){.name = name, .type = METRIC_UINT, .u = value};
}

static int data_sample(struct metrics *hub, uid_t uid, const json_t *record)
{
	const char *kind = text_of(record, "kind", MAX_KIND);
	const char *domain = text_of(record, "domain", MAX_DOMAIN);
	const char *name = text_of(record, "name", MAX_NAME);
	uint64_t timestamp, duration;
	int64_t device;
	char device_text[24];
	struct metric m[6];
	size_t n = 0;

	if (!kind || !*kind || unsigned_of(json_object_get(record, "timestamp"), &timestamp) < 0 ||
	    unsigned_of(json_object_get(record, "duration"), &duration) < 0 ||
	    device_of(json_object_get(record, "deviceId"), &device) < 0)
		return -EINVAL;
	if (device == SAMPLE_NO_DEVICE)
		snprintf(device_text, sizeof(device_text), "host");
	else
		snprintf(device_text, sizeof(device_text), "%lld", (long long)device);
	m[n++] = number_metric("timestamp", timestamp);
	m[n++] = number_metric("duration", duration);
	m[n++] = text_metric("deviceId", device_text);
	m[n++] = text_metric("kind", kind);
	if (domain)
		m[n++] = text_metric("domain", domain);
	if (name)
		m[n++] = text_metric("name", name);
	struct sample s = {
		.source = "data",
		.time_ns = (int64_t)timestamp,
		.device = device,
		.uid = uid == geteuid() ? 0 : uid,
		.metrics = m,
		.n = n,
	};
	metrics_sample(hub, &s);
	return 0;
}

void metrics_data(struct metrics *m, uid_t uid, const json_t *record)
{
	if (data_sample(m, uid, record) < 0 && !m->bad_data++)
		log_warn("a monitor sent a record without kind, deviceId, duration or timestamp: "
			 "such records are counted and dropped");
}
