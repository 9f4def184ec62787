/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Requests to the job: traces, monitors, snapshots, reports; and their outcome. */
"use strict";

let followed = []; // requests whose outcome is not known yet

/* --- requests --- */

/* Texts as the dyno command writes them, line by line. */
function npuTrace(f) {
	return ["ACTIVITIES_LOG_FILE=" + f.path, ...f.by === "steps" ? ["PROFILE_START_ITERATION=0",
		"PROFILE_START_STEP=" + f.first, "ACTIVITIES_ITERATIONS=" + f.steps] :
		["PROFILE_START_STEP=-1", "ACTIVITIES_DURATION_MSECS=" + f.ms], "PROFILE_RECORD_SHAPES=" + f.shapes,
		"PROFILE_PROFILE_MEMORY=" + f.memory, "PROFILE_WITH_STACK=" + f.stack, "PROFILE_WITH_FLOPS=false",
		"PROFILE_WITH_MODULES=false", "PROFILE_ACTIVITIES=CPU,NPU", "PROFILE_ANALYSE=false",
		"PROFILE_ASYNC_MODE=false", "PROFILE_PROFILER_LEVEL=" + f.level, "PROFILE_AIC_METRICS=AiCoreNone",
		"PROFILE_L2_CACHE=false", "PROFILE_OP_ATTR=false", "PROFILE_MSPROF_TX=false",
		"PROFILE_GC_DETECT_THRESHOLD=None", "PROFILE_DATA_SIMPLIFICATION=true", "PROFILE_EXPORT_TYPE=Text",
		"PROFILE_HOST_SYS=None", "PROFILE_SYS_IO=false", "PROFILE_SYS_INTERCONNECTION=false",
		"PROFILE_MSTX_DOMAIN_INCLUDE=None", "PROFILE_MSTX_DOMAIN_EXCLUDE=None", "PROFILE_IS_RANK=false",
		"PROFILE_RANK_LIST=None"].join("\n");
}

function gpuTrace(f) {
	const path = f.path.endsWith(".json") ? f.path : f.path + ".json";
	return ["ACTIVITIES_LOG_FILE=" + path,
		...f.by === "steps" ? ["PROFILE_START_ITERATION=0", "PROFILE_START_ITERATION_ROUNDUP=1",
			"ACTIVITIES_ITERATIONS=" + f.steps] :
			["PROFILE_START_TIME=0", "ACTIVITIES_DURATION_MSECS=" + f.ms],
		"PROFILE_REPORT_INPUT_SHAPES=" + f.shapes, "PROFILE_PROFILE_MEMORY=" + f.memory,
		"PROFILE_WITH_STACK=" + f.stack, "PROFILE_WITH_FLOPS=false",
		"PROFILE_WITH_MODULES=false"].join("\n");
}

const kindsChosen = () => [...document.querySelectorAll("#m-kinds input:checked")].map((b) => b.value).join(",") || "Marker";

function npuMonitor(start) {
	return ["NPU_MONITOR_START=" + start, "NPU_MONITOR_STOP=" + !start,
		"REPORT_INTERVAL_S=" + ($("m-interval").value || 60), "DURATION=" + ($("m-duration").value || 0),
		"MSPTI_ACTIVITY_KIND=" + kindsChosen(), "NPU_MONITOR_LOG_FILE=",
		"NPU_MONITOR_EXPORT_TYPE=DB", "JSONL_ROTATE_LOG_LINES=", "JSONL_ROTATE_LOG_FILES=",
		"NPU_MONITOR_FILTER="].join("\n");
}

/* One request for each job that is meant. Where nobody is selected it is for all who understand it. */
function requests(config, client) {
	const takes = (p) => client === "npu" ? p.clients.some((c) => c !== "kineto") : p.clients.includes(client);
	const mixed = !shown.every(takes), jobs = new Map();
	const meant = selected.size ? [...selected.values()] : shown.filter(takes);
	for (const p of meant) {
		if (!jobs.has(p.job_id))
			jobs.set(p.job_id, []);
		jobs.get(p.job_id).push(p.pid);
	}
	if (!jobs.size)
		jobs.set(0, []);
	return [...jobs].map(([job_id, pids]) => ({config, job_id,
		pids: selected.size || mixed ? pids : [], process_limit: 1000}));
}

function showResult(kind, text, lines) {
	const box = $("result");
	box.className = "note " + kind;
	box.hidden = false;
	box.replaceChildren(make("p", {textContent: text}));
	if (lines && lines.length)
		box.append(make("ul", {}, ...lines.map((l) => make("li", {textContent: l}))));
	box.scrollIntoView({block: "nearest"});
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/* The outcome of a request, as soon as all processes have replied, or more of them than before. */
async function outcome(id, tries) {
	let r = await api("getAnswers", {request: id});
	for (let i = 0; i < tries && r.waiting.length; i++) {
		await sleep(100);
		r = await api("getAnswers", {request: id});
	}
	return r;
}
const refusals = (r) => [...r.failed, ...r.not_written].map((f) => "Process " + f.pid + ": " + f.why + ".");

/* How a result is read: commands for the node, since files belong to the job's user. */
function resultLines(paths) {
	const folders = [...new Set(paths.map((p) => p.replace(/\/[^/]*$/, "") || "/"))];
	return [...paths.map((p) => make("li", {}, make("code", {textContent: p}))),
		make("li", {}, "Read them on the node with ", make("code", {textContent: "sonde activity summary " +
			folders[0]}), " or open them at ui.perfetto.dev.")];
}

/* --- the report of a trace --- */

async function makeReport(f) {
	f.report = {running: true};
	showFollowed();
	try {
		let r = await api("makeReport", {request: f.id});
		const number = r.report;
		for (let i = 0; number && i < 600; i++) {
			r = await api("getReport?report=" + number);
			if (r.state !== "running")
				break;
			await sleep(500);
		}
		f.report = r.path ? {path: r.path} : {why: r.why || (r.status || "It took too long.").replace(/^failed: /, "")};
	} catch (e) {
		f.report = {why: e.message};
	}
	showFollowed();
}

/* A button, what goes on, or a link: it opens beside this page. */
function reportLine(f) {
	const r = f.report;
	if (!r)
		return make("p", {}, make("button", {type: "button", textContent: "Make its report", onclick: () => makeReport(f)}));
	if (r.running)
		return make("p", {}, "Its report is made … ", make("progress", {ariaLabel: "the report is made"}));
	if (r.path)
		return make("p", {}, make("a", {href: r.path, target: "_blank", rel: "noopener", textContent: "Open its report"}),
			": device time of every rank and step, and kernels.");
	return make("p", {textContent: "There is no report: " + r.why});
}

/* A trace that was accepted may fail later, and is there when its files are. */
function showFollowed() {
	const box = $("followed");
	box.hidden = !followed.length;
	box.replaceChildren(...followed.map((f) => make("div", {}, make("p", {}, f.text + ": " +
		f.written.length + " of " + f.n + " written" + (f.bad.length ? ", " + f.bad.length + " failed" : "") + " "),
		make("progress", {max: f.n, value: f.written.length + f.bad.length, ariaLabel: "progress of the trace"}),
		make("ul", {}, ...f.bad.map((b) => make("li", {textContent: b})),
			...f.written.length ? resultLines(f.written) : []),
		...f.written.length && f.replied >= f.n ? [reportLine(f)] : [])));
}

async function follow() {
	for (const f of followed) {
		if (f.replied >= f.n)
			continue;
		const r = await outcome(f.id, 0), bad = refusals(r), news = bad.length + r.written.length;
		f.bad = bad;
		f.written = r.written.map((w) => w.path);
		if (news > f.replied && bad.length)
			showResult("bad", "The request failed in " + bad.length + " of " + f.n + " processes.", bad);
		else if (news > f.replied)
			showResult("good", "Written: " + r.written.length + " of " + f.n + ".", f.written);
		f.replied = news;
	}
	followed = followed.filter((f) => f.replied >= f.n || Date.now() < f.until);
	showFollowed();
}

async function sendRequest(config, client, done) {
	let triggered = 0, busy = 0, refused = 0;
	const why = [];
	followed = followed.filter((f) => f.replied < f.n);
	for (const request of requests(config, client)) {
		const explained = await api("explainRequest", request);
		const reply = await api("setKinetOnDemandRequest", request);
		let n = (reply.activityProfilersTriggered || []).length;
		if (n && reply.requestTraceId) {
			const r = await outcome(reply.requestTraceId, 30);
			why.push(...refusals(r));
			refused += r.failed.length;
			n = Math.max(0, n - r.failed.length);
			if (n && /^ACTIVITIES_LOG_FILE/m.test(config)) // a monitor has no file that ends
				followed.push({id: reply.requestTraceId, n: n + r.failed.length, replied: r.failed.length, written: [],
					bad: [], text: "Trace of " + new Date().toLocaleTimeString(), until: Date.now() + 600000});
		}
		triggered += n;
		busy += reply.activityProfilersBusy || 0;
		if (typeof reply.status === "string")
			why.push(reply.status);
		else if (!n && !refused && explained.reason)
			why.push(explained.reason, ...explained.reason.includes("npu-monitor is running") ?
				["\"Stop monitor\" on this page does that, too."] : []);
		if (reply.tracesReplaced)
			why.push("It takes the place of a trace that had not begun: " + reply.tracesReplaced.join(", ") + ".");
		if (reply.tracesDropped)
			why.push("A trace that had not begun is dropped: " + reply.tracesDropped.join(", ") + ".");
		if (n && reply.stepsUnknown)
			why.push("No steps are reported yet by " + reply.stepsUnknown.join(", ") + ": the trace begins when " +
				"the job reports them. Stopping the monitor cancels a trace that has not begun.");
		if (reply.notHonoured)
			why.push("Without " + reply.notHonoured.join(", ") + ": sonde's own monitor has no such thing.");
	}
	const processes = (n) => n === 1 ? "1 process" : n + " processes";
	if (refused && !triggered)
		showResult("bad", "Refused by " + processes(refused) + ".", why);
	else if (triggered)
		showResult(refused ? "warn" : "good", done.replace("%", processes(triggered)) + (busy ?
			" " + processes(busy) + " still had an older request waiting." : "") +
			(refused ? " Refused by " + processes(refused) + "." : ""), why);
	else if (busy)
		showResult("warn", "Nothing new: " + processes(busy) + " still had an older request waiting.", why);
	else
		showResult("warn", "Nothing happened.", why);
}

async function carryOut(form, config, client, done) {
	const buttons = form.querySelectorAll("button");
	buttons.forEach((b) => b.disabled = true);
	try {
		await sendRequest(config, client, done);
	} catch (e) {
		showResult("bad", "The daemon refused: " + e.message);
	}
	buttons.forEach((b) => b.disabled = false);
	refresh();
}

$("trace-form").addEventListener("submit", (e) => {
	const f = {path: $("t-path").value.trim(), first: $("t-first").value || -1, steps: $("t-steps").value || 1,
		ms: $("t-ms").value || 500, by: $("t-by").value, level: $("t-level").value,
		stack: $("t-stack").checked, shapes: $("t-shapes").checked, memory: $("t-memory").checked};
	const npu = $("t-kind").value === "npu";
	e.preventDefault();
	if (/[=\n#]/.test(f.path) || !f.path.startsWith("/")) {
		showResult("bad", "The path must be absolute, without '=' or '#'.");
		return;
	}
	if (onHosts()) {
		orderHosts(e.target, traceOrder(f, npu));
		return;
	}
	carryOut(e.target, npu ? npuTrace(f) : gpuTrace(f), npu ? "npu" : "kineto",
		"% will be traced; results go to " + f.path + ".");
});
$("monitor-form").addEventListener("submit", (e) => {
	e.preventDefault();
	if (onHosts())
		orderHosts(e.target, monitorOrder());
	else
		carryOut(e.target, npuMonitor(true), "npu", "The monitor starts in %.");
});
$("m-stop").addEventListener("click", () => {
	if (onHosts())
		orderHosts($("monitor-form"), {order: "monitor-stop"});
	else
		carryOut($("monitor-form"), npuMonitor(false), "npu", "The monitor stops in %.");
});

/* Fields that make sense for what is chosen. */
function showFields() {
	const npu = $("t-kind").value === "npu", steps = $("t-by").value === "steps";
	const fits = {npu, ms: !steps, steps, first: npu && steps, time: npu && !steps};
	document.querySelectorAll("[data-for]").forEach((e) => e.hidden = !fits[e.dataset.for]);
}
$("t-kind").addEventListener("change", () => {
	$("t-by").value = $("t-kind").value === "npu" ? "steps" : "ms";
	showFields();
});
$("t-by").addEventListener("change", showFields);

