/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * `sonde record`: a window that nobody has to ask for. It is open from the moment that the process
 * uses a device, or from about the first step that is wanted, until the process or the time ends.
 * Steps are noticed by our thread, so a window for steps begins early and ends late.
 */
#include "guest/monitor/monitor_impl.h"

#include "guest/collect/collect.h"
#include "wire/control_page.h"

#define EARLY_STEPS 2 /* a source takes a moment until it reports */
#define STEP_LOOK_NS (10 * MS_NS)
#define LOOK_NS (1000 * MS_NS)
#define GAP_LOOK_NS (100 * MS_NS) /* whether another profiler has the library */
#define SOON_NS (50 * MS_NS) /* between attempts to start the source, at first */
#define SOON_TRIES 100

static struct {
	uint32_t pid; /* whose this is */
	bool on;
	bool sends; /* the recorder knows the daemon, and sends what `sonde top` shows */
	unsigned tries;
	uint64_t retry_ns;
} resident;

bool resident_is_wanted(void)
{
	const struct session_record *r = collect_record();

	return r && r->kinds;
}

/* Which step the process is in: 1 before the first has ended. */
static bool is_in_steps(const struct session_record *r)
{
	uint64_t step = (uint64_t)(steps_now() + 1);

	if (!r->last_step)
		return true;
	return (step ? step : 1) + EARLY_STEPS >= r->first_step && step <= r->last_step;
}

static size_t write_request(const struct session_record *r, char *out, size_t cap)
{
	struct text t = {out, out + cap};
	const char *comma = "";

	text_str(&t, "NPU_MONITOR_START=true\nNPU_MONITOR_STOP=false\nREPORT_INTERVAL_S=60\n"
		     "DURATION=0\nNPU_MONITOR_LOG_FILE=\nNPU_MONITOR_EXPORT_TYPE=DB\n"
		     "SONDE_RECORD=true\nMSPTI_ACTIVITY_KIND=");
	for (uint32_t kind = 1; kind < ACTIVITY_KIND_END; kind++) {
		if (!(r->kinds & ACTIVITY_BIT(kind)) || !activity_kind_name(kind))
			continue;
		text_str(&t, comma);
		text_str(&t, activity_kind_name(kind));
		comma = ",";
	}
	text_str(&t, "\n");
	return t.at ? (size_t)(t.at - out) : 0;
}

static void start_resident(const struct session_record *r, uint64_t now_ns)
{
	char text[512];
	size_t len = write_request(r, text, sizeof(text));

	resident.on = len && control_start_resident(text, len) == 0;
	resident.sends = link_data_address()[0];
	if (resident.on)
		return;
	resident.tries += resident.tries < SOON_TRIES;
	resident.retry_ns = now_ns + (resident.tries < SOON_TRIES ? SOON_NS : LOOK_NS);
}

/* The daemon was found later than the device. */
static void name_daemon(const struct session_record *r)
{
	char text[512];
	size_t len = write_request(r, text, sizeof(text));

	if (resident.sends || !len || !link_data_address()[0])
		return;
	control_change_resident(text, len);
	resident.sends = true;
}

/* A forked child begins anew, as the control does. */
static void forget_parents(void)
{
	uint32_t pid = (uint32_t)getpid();

	if (resident.pid != pid) {
		resident.pid = pid;
		resident.on = false;
		resident.tries = 0;
		resident.retry_ns = 0;
	}
}

uint64_t resident_run_due(uint64_t now_ns)
{
	const struct session_record *r = collect_record();

	if (!r || !r->kinds)
		return UINT64_MAX;
	forget_parents();
	bool wanted = !atomic_load(&r->over) && is_in_steps(r);
	if (!wanted && resident.on) {
		control_end_resident();
		resident.on = false;
	}
	if (wanted && !resident.on && now_ns >= resident.retry_ns)
		start_resident(r, now_ns);
	if (wanted && !resident.on)
		return resident.retry_ns;
	if (resident.on)
		name_daemon(r);
	return now_ns + (r->last_step || r->duration_ms ? STEP_LOOK_NS
			 : resident.on			? GAP_LOOK_NS
							: LOOK_NS);
}
