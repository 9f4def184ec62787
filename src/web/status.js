/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The status page: asks the daemon every few seconds and shows what it says. Texts come from
 * processes of anybody, so they are only ever set as text, never as HTML.
 */
"use strict";

const PERIOD_MS = 2000, POINTS = 90, PAGE = 200;
const KINDS = ["Marker", "Kernel", "API", "Hccl", "Memory", "MemSet", "MemCpy", "Communication",
	"AclAPI", "NodeAPI", "RuntimeAPI"];
const selected = new Map(); // "job/pid" -> {pid, job}
const curves = new Map(); // tile -> points
let shown = [], latestTop = {processes: [], slowest: null};

/* --- tiles --- */

/* One more point of a curve, if its sample is new. */
function remember(key, time, value) {
	let h = curves.get(key);
	if (!h)
		curves.set(key, h = {time: 0, points: []});
	if (h.time !== time) {
		h.time = time;
		h.points.push(value);
		if (h.points.length > POINTS)
			h.points.shift();
	}
	return h.points;
}

function sparkline(points, high) {
	const ns = "http://www.w3.org/2000/svg";
	const svg = document.createElementNS(ns, "svg");
	const line = points.map((v, i) => (i * 100 / Math.max(points.length - 1, 1)).toFixed(1) + "," +
		(30 - 28 * Math.min(Math.max(v / high, 0), 1)).toFixed(1));
	svg.setAttribute("viewBox", "0 0 100 30");
	svg.setAttribute("preserveAspectRatio", "none");
	svg.setAttribute("aria-hidden", "true");
	for (const [tag, list] of [["polygon", ["0,30", ...line, "100,30"]], ["polyline", line]]) {
		const shape = document.createElementNS(ns, tag);
		shape.setAttribute("points", list.join(" "));
		svg.append(shape);
	}
	return svg;
}

/* Tiles, each with its curve. Those of one kind have one scale, so that they can be compared; `top`:
 * the scale ends there. */
function makeTiles(list) {
	const scales = new Map();
	for (const t of list) {
		t.points = t.value === null ? [] : remember(t.key, t.time, t.value);
		t.kind = t.kind || t.key;
		scales.set(t.kind, Math.max(scales.get(t.kind) || 1e-9, t.top || Math.max(...t.points, 0)));
	}
	return list.map((t) => {
		const high = scales.get(t.kind), tile = make("div", {className: "tile", title: t.title || ""},
			make("div", {className: "name"}, make("span", {textContent: t.name, title: t.name}),
				make("span", {textContent: t.more || ""})),
			make("div", {className: "value", textContent: t.text}));
		tile.dataset.scale = high;
		if (t.points.length > 1)
			tile.append(sparkline(t.points, high));
		return tile;
	});
}

function sum(metrics, prefix, skip) {
	let n = 0;
	for (const [name, v] of Object.entries(metrics))
		if (name.startsWith(prefix) && !skip.test(name.slice(prefix.length)))
			n += v;
	return n;
}

function showMachine(s) {
	const m = s.metrics, time = s.time_ns, list = [];
	if ("cpu_util" in m)
		list.push({key: "cpu", time, name: "CPU", value: m.cpu_util, text: percent(m.cpu_util), top: 100,
			more: m.load_1m === undefined ? "" : "load " + m.load_1m.toFixed(2)});
	if (m.mem_total)
		list.push({key: "mem", time, name: "Memory", value: m.mem_used, text: bytes(m.mem_used),
			more: "of " + bytes(m.mem_total), top: m.mem_total});
	if ("cpu_util" in m) {
		/* what is counted is of the time between two samples, which the daemon knows */
		const add = (key, kind, name, prefix, skip) => {
			const value = s.interval_s ? sum(m, prefix, skip) / s.interval_s : null;
			list.push({key, kind, time, name, value, text: value === null ? "–" : bytes(value) + "/s"});
		};
		add("rx", "network", "Network, received", "rx_bytes.", /^lo$/);
		add("tx", "network", "Network, sent", "tx_bytes.", /^lo$/);
		add("dr", "disks", "Disks, read", "disk_read_bytes.", /^(loop|ram|zram)/);
		add("dw", "disks", "Disks, written", "disk_write_bytes.", /^(loop|ram|zram)/);
	}
	$("machine").replaceChildren(...makeTiles(list));
}

function showDevices(samples) {
	const first = (m, ...names) => names.map((n) => m[n]).find((v) => v !== undefined);
	samples.sort((a, b) => byNumber(a.source, b.source) || byNumber(a.device, b.device));
	const tiles = makeTiles(samples.map((s) => {
		const m = s.metrics, use = first(m, "aicore_utilization", "npu_utilization",
			"gpu_device_utilization");
		const name = s.source.toUpperCase() + " " + s.device;
		return {key: name, time: s.time_ns, name, value: use || 0, top: 100,
			text: use === undefined ? "–" : percent(use), more: first(m, "npu_name", "gpu_name")};
	}));
	samples.forEach((s, i) => {
		const m = s.metrics, facts = make("dl", {className: "facts"});
		const used = first(m, "hbm_used_bytes", "gpu_memory_used_bytes");
		const total = first(m, "hbm_total_bytes", "gpu_memory_total_bytes");
		if (total)
			tiles[i].append(make("meter", {className: "bar", max: total, high: total * .9, value: used,
				title: "device memory"}));
		const fact = (n, text) => facts.append(make("dt", {textContent: n}),
			make("dd", {textContent: text}));
		if (total)
			fact("memory", bytes(used) + " of " + bytes(total));
		const celsius = first(m, "npu_temperature_c", "gpu_temperature_c");
		const watts = first(m, "npu_power_draw_w", "gpu_power_draw");
		if (celsius !== undefined)
			fact("temperature", celsius + " °C");
		if (watts !== undefined)
			fact("power", watts.toFixed(0) + " W");
		if (m.npu_health !== undefined)
			fact("health", m.npu_health ? "trouble (" + m.npu_health + ")" : "good");
		if (m.username)
			fact("user", m.username + (m.job_id ? ", job " + m.job_id : ""));
		tiles[i].append(facts);
	});
	$("devices-section").hidden = !tiles.length;
	$("devices").replaceChildren(...tiles);
}

function showActivity(samples) {
	samples.sort((a, b) => byNumber(a.metrics.kind, b.metrics.kind) ||
		byNumber(a.metrics.domain || "", b.metrics.domain || "") ||
		byNumber(a.metrics.deviceId, b.metrics.deviceId));
	$("activity-section").hidden = !samples.length;
	$("activity").replaceChildren(...makeTiles(samples.slice(0, 48).map((s) => {
		const m = s.metrics, on = m.deviceId === "host" ? "host" : "device " + m.deviceId;
		const name = m.kind + (m.domain ? " / " + m.domain : "");
		return {key: "act " + name + on + (s.uid ?? ""), kind: "act " + name, time: s.time_ns, name,
			value: m.duration, text: nanoseconds(m.duration), more: on, title: s.records + " records"};
	})));
}

/* --- where the time goes --- */

/* The rows of all processes by kind and name, and what they are shares of. */
function sumUp(processes) {
	const lines = new Map();
	let total = 0;
	for (const p of processes) {
		total += p.others.total_ns;
		for (const r of p.rows) {
			if (r.share === null)
				continue;
			const key = r.kind + "\0" + r.name;
			const l = lines.get(key) || {kind: r.kind, name: r.name, calls: 0, total_ns: 0, p99_ns: 0,
				now: 0, nowCalls: 0, before: 0, beforeCalls: 0};
			lines.set(key, l);
			total += r.total_ns;
			l.calls += r.calls;
			l.total_ns += r.total_ns;
			l.p99_ns = Math.max(l.p99_ns, r.p99_ns);
			if (r.before_calls) {
				l.now += r.total_ns;
				l.nowCalls += r.calls;
				l.before += r.before_total_ns;
				l.beforeCalls += r.before_calls;
			}
		}
	}
	return {total, lines: [...lines.values()].sort((a, b) => b.total_ns - a.total_ns)};
}

function topRow(l, total) {
	const cell = (v, name) => make("td", {className: name || "n", textContent: v});
	const change = l.before > 0 ? (l.now / l.nowCalls / (l.before / l.beforeCalls) - 1) * 100 : null;
	return make("tr", {}, cell(percent(100 * l.total_ns / total)), cell(l.calls), cell(nanoseconds(l.total_ns)),
		cell(nanoseconds(l.total_ns / l.calls)), cell(l.p99_ns ? nanoseconds(l.p99_ns) : "–"),
		cell(change === null ? "–" : (change < 0 ? "−" : "+") + Math.abs(change).toFixed(1) + " %"),
		cell(l.kind, "kind"), make("td", {className: "command", textContent: l.name, title: l.name}));
}

const LOSSES = [["lost", "activities are missing from these numbers."],
	["crowded", "activities are in no sum of the metrics: more than 256 devices."],
	["incomplete", "marks are not shown: their end or their beginning is missing."],
	["unwritten", "activities are not in the files of npu-monitor: they could not be written."],
	["unsent", "reports did not reach the daemon, which was away or too slow."]];

const PARTS = [["kernels", "Kernel", "Kernel"], ["communication", "Communication", "Hccl"],
	["copies", "MemCpy", "MemSet"]];

/* What the numbers are of, in the words of sonde top. */
function topAbout(t, fresh) {
	const words = [], collects = (p, kinds) => !p.kinds || p.kinds.some((k) => kinds.includes(k));
	const missing = PARTS.filter(([, ...kinds]) => !fresh.some((p) => collects(p, kinds)));
	if (!t.running && !t.paused)
		words.push(["", "The monitor is off: these are its last numbers, of " +
			Math.max(...fresh.map((p) => p.age_s)).toFixed(0) + " s ago."]);
	if (fresh.some((p) => p.filter))
		words.push(["", "These numbers are of what the monitor's --filter lets through, and of nothing else."]);
	if (missing.length)
		words.push(["", "Not collected: " + missing.map(([name]) => name).join(", ") + "."]);
	return words;
}

function topWords(t, fresh) {
	const words = fresh.length ? topAbout(t, fresh) : [], s = t.slowest;
	const rank = (r) => r.rank === null ? "process " + r.pid : "rank " + r.rank;
	if (s)
		words.push(["warn", "Rank " + s.rank + " is the slowest (process " + s.pid + "): " + (s.by === "steps" ?
			"its steps take " + percent(100 * s.ratio) + " longer than those of the others" :
			"the others wait " + percent(100 * s.ratio) + " of the time for it") +
			(s.behind_ns ? ", " + nanoseconds(s.behind_ns) + " a step." : ".")]);
	const slower = (r, what, was) => {
		const more = r.baseline_ns ? r.mean_ns / r.baseline_ns - 1 : 0;
		return r.name + " on " + rank(r) + (more >= 0.0005 ? what + nanoseconds(r.mean_ns) + ", " +
			(more < 9 ? percent(100 * more) + " more than usual" : (more + 1).toFixed(0) +
			" times the usual") + ", since " : " takes " + nanoseconds(r.mean_ns) +
			" again, as usual; it " + was + " since ") + new Date(r.since / 1e6).toLocaleTimeString() + ".";
	};
	for (const r of t.regressions.slice(0, 5))
		words.push([r.mean_ns > r.baseline_ns ? "bad" : "", slower(r, " takes ", "was slower")]);
	/* who waits is no cause: one line, and no alarm */
	if (t.waits.length)
		words.push(["", "Waiting for other ranks: " + slower(t.waits[0], " waits longer, and takes ",
			"waited longer").slice(0, -1) + (t.waits.length > 1 ? "; so do " + (t.waits.length - 1) +
			" more." : ".")]);
	for (const [key, what] of LOSSES) {
		const n = t.processes.reduce((sum, p) => sum + (p[key] || 0), 0);
		if (n)
			words.push(["warn", n + " " + what]);
	}
	if (t.paused)
		words.push(["", "The monitor is paused for a trace by PyTorch's own profiler."]);
	return words;
}

function showTop(t) {
	const fresh = t.processes.filter((p) => !p.late), all = sumUp(fresh);
	$("top-section").hidden = !fresh.length;
	$("top-words").replaceChildren(...topWords(t, fresh).map(([kind, text]) =>
		make("p", {className: "note " + kind, textContent: text})));
	$("top").replaceChildren(...all.lines.slice(0, 15).map((l) => topRow(l, all.total || 1)));
}

/* --- processes --- */

const keyOf = (p) => p.job_id + "/" + p.pid;

function row(p, top) {
	const box = make("input", {type: "checkbox", checked: selected.has(keyOf(p)),
		ariaLabel: "Select process " + p.pid});
	box.dataset.key = keyOf(p);
	const cell = (v, name) => make("td", {className: name, textContent: v ?? "–"});
	const what = p.command || "", t = top.get(p.pid), note = noteOf(p, t);
	const step = p.current_step < 0 ? null : p.start_step === undefined ? p.current_step :
		p.current_step + " [" + p.start_step + ", " + p.stop_step + ")";
	const rank = cell(p.rank, "n");
	if (p.rank_at_start)
		rank.title = "the rank that it was started with: a daemon with --user does not look into processes";
	return make("tr", {}, make("td", {}, box), rank, cell(p.pid, "n"),
		cell(p.device, "n"), cell(p.job_id, "n"), make("td", {}, chip(p.state)), cell(step, "n"),
		cell(t && t.steps ? nanoseconds(t.steps.mean_ns) : null, "n"), make("td", {}, partsBar(t)),
		make("td", {}, note ? make("span", {className: "chip " + note[0], textContent: note[1]}) : ""),
		make("td", {className: "command", textContent: what || "–",
			title: what + (p.user ? "\n" + p.user + ", " + p.client + ", " + p.endpoint : "")}),
		cell(duration(p.last_seen_s) + " ago", "n"));
}

function showProcesses(list) {
	const active = document.activeElement && document.activeElement.dataset.key;
	shown = list.processes.sort((a, b) => a.job_id - b.job_id ||
		(a.rank ?? Infinity) - (b.rank ?? Infinity) || a.pid - b.pid);
	for (const key of selected.keys())
		if (!shown.some((p) => keyOf(p) === key))
			selected.delete(key);
	const top = new Map(latestTop.processes.filter((t) => !t.late).map((t) => [t.pid, t]));
	judgeSteps(shown, top);
	$("processes").replaceChildren(...shown.map((p) => row(p, top)));
	$("parts-legend").hidden = !top.size;
	showJobWords(shown, top);
	showMemoryChoice(shown);
	if (active) // the row was made anew: the keyboard stays where it was
		for (const box of $("processes").querySelectorAll("input"))
			if (box.dataset.key === active)
				box.focus();
	$("empty").hidden = shown.length > 0;
	$("more").hidden = list.total <= shown.length;
	$("more").textContent = "The first " + shown.length + " of " + list.total + "; dyno ps shows all.";
	$("count").textContent = list.total;
	showTarget();
}

function showTarget() {
	const n = selected.size;
	$("all").checked = n > 0 && n === shown.length;
	$("all").indeterminate = n > 0 && n < shown.length;
	$("target").textContent = onHosts() ? "For every process that you may ask on the hosts above." : n === 0 ? "For every process: select some above to ask only them." :
		n === 1 ? "For the selected process." : "For the " + n + " selected processes.";
}

$("processes").addEventListener("change", (e) => {
	const p = shown.find((x) => keyOf(x) === e.target.dataset.key);
	if (p && e.target.checked)
		selected.set(keyOf(p), p);
	else
		selected.delete(e.target.dataset.key);
	showTarget();
});
$("all").addEventListener("change", (e) => {
	selected.clear();
	if (e.target.checked)
		shown.forEach((p) => selected.set(keyOf(p), p));
	document.querySelectorAll("#processes input").forEach((b) => b.checked = e.target.checked);
	showTarget();
});

/* --- the loop --- */

function showDaemon(d) {
	$("host").textContent = d.hostname;
	document.title = d.hostname + " – sonde";
	$("about").textContent = "sonde " + d.version + ", up " + duration(d.uptime_s) +
		(d.tls ? ", TLS" : "") +
		(d.sandbox ? ", in a sandbox as " + (d.sandbox.user ?? "user " + d.sandbox.uid) : "");
}

function showStatus(s) {
	$("trace").replaceChildren(chip(s.nputrace));
	$("monitor").replaceChildren(chip(s.npumonitor));
	$("step").textContent = s.current_step < 0 ? "–" : s.start_step === undefined ? s.current_step :
		s.current_step + " [" + s.start_step + ", " + s.stop_step + ")";
}

function showMetrics(all) {
	const of = (...names) => all.samples.filter((s) => names.includes(s.source));
	const kernel = of("kernel")[0];
	if (kernel)
		showMachine(kernel);
	showDevices(of("npu", "gpu"));
	showActivity(of("data"));
	$("sources").textContent = all.sources.filter((s) => s.state !== "absent")
		.map((s) => s.name + " " + s.state + (s.why && s.state !== "works" ? ": " + s.why : "")).join(", ");
}

let busy = false, rounds = 0;
async function refresh() {
	if (busy || document.hidden)
		return;
	busy = true;
	try {
		const [daemon, status, list, metrics, top] = await Promise.all([api("getDaemon"),
			api("getStatus"), api("listProcesses?limit=" + PAGE), api("getMetrics"), api("getTop?limit=40")]);
		showDaemon(daemon);
		showStatus(status);
		latestTop = top;
		showProcesses(list);
		showMetrics(metrics);
		showTop(top);
		if (rounds++ % 3 === 0)
			await fetchHistory();
		drawCharts();
		await followMemory();
		await followHosts();
		await follow();
		$("trouble").hidden = true;
		$("live").className = "dot on";
		$("live").ariaLabel = "the daemon answers";
	} catch (e) {
		$("live").className = "dot off";
		$("live").ariaLabel = "the daemon does not answer";
		$("trouble").hidden = false;
		$("trouble").textContent = e instanceof TypeError ? "The daemon does not answer." : e.message;
	}
	busy = false;
}

$("m-kinds").append(...KINDS.map((k) => make("label", {},
	make("input", {type: "checkbox", value: k, checked: k === "Kernel" || k === "Communication"}), k)));
showFields();
refresh();
setInterval(refresh, PERIOD_MS);
document.addEventListener("visibilitychange", refresh);
