/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Charts of the last hour: one for each kind of number, a line for each device or rank. The daemon gives
 * parts of ten seconds; what is here already is not asked for again. Names are only ever set as text.
 */
"use strict";

const HOUR = 360, NS = "http://www.w3.org/2000/svg", WIDTH = 600, HEIGHT = 150, COLOURS = 8, GAP = 13;
const hist = {binNs: 1e10, newest: 0, now: 0, bytes: 0, series: new Map()};
let chartBins = 30, chosen = false; // by the person; else as far back as there is something

function svgElement(tag, attributes) {
	const e = document.createElementNS(NS, tag);
	for (const [name, value] of Object.entries(attributes))
		e.setAttribute(name, value);
	return e;
}

/* --- what is known --- */

function keepSeries(key, about, first, values) {
	let s = hist.series.get(key);
	if (!s)
		hist.series.set(key, s = {...about, ring: new Array(HOUR).fill(null)});
	s.seen = hist.now;
	values.forEach((v, i) => s.ring[(first + i) % HOUR] = v);
}

function keepHistory(h) {
	const first = Math.round(h.first_ns / h.bin_ns), newest = Math.floor(h.now_ns / h.bin_ns);
	for (const s of hist.series.values()) // what nobody has told about yet is not what was there an hour ago
		for (let bin = Math.max(hist.newest + 1, newest - HOUR + 1); bin <= newest; bin++)
			s.ring[bin % HOUR] = null;
	Object.assign(hist, {binNs: h.bin_ns, newest, now: h.now_ns, bytes: h.bytes});
	for (const s of h.series) {
		const name = s.device === null ? "host" : s.source.toUpperCase() + " " + s.device;
		keepSeries([s.source, s.device, s.name].join("|"), {kind: (s.device === null ? "host " : "") + s.name, name},
			first, s.values);
	}
	for (const p of h.processes) {
		const name = p.rank === null ? "process " + p.pid : "rank " + p.rank;
		keepSeries("step|" + p.job_id + "|" + p.pid, {kind: "step", name, pid: p.pid}, first, p.step_ns);
		keepSeries("busy|" + p.job_id + "|" + p.pid, {kind: "busy", name, pid: p.pid}, first,
			p.busy.map((v) => v === null ? null : 100 * v));
	}
	for (const [key, s] of hist.series)
		if (s.seen !== hist.now)
			hist.series.delete(key);
}

async function fetchHistory() {
	const after = hist.now ? hist.now - hist.binNs : 0;
	keepHistory(await api("getHistory?after_ns=" + Math.max(0, after).toFixed(0)));
}

/* The newest values, oldest first. */
function newest(s, n) {
	const list = [];
	for (let bin = hist.newest - n + 1; bin <= hist.newest; bin++)
		list.push(s.ring[(bin % HOUR + HOUR) % HOUR]);
	return list;
}

/* --- drawing --- */

/* Values come less often than a part is long: small gaps are bridged, larger ones are gaps. */
function pathOf(values, high) {
	let d = "", last = -Infinity;
	values.forEach((v, i) => {
		if (v === null)
			return;
		const x = (i * WIDTH / Math.max(values.length - 1, 1)).toFixed(1);
		const y = (HEIGHT - 2 - (HEIGHT - 8) * Math.min(v / high, 1)).toFixed(1);
		d += i - last <= GAP ? "L" + x + " " + y : "M" + x + " " + y + "h.01";
		last = i;
	});
	return d;
}

const lastOf = (values) => values.reduce((last, v) => v === null ? last : v, null);

/* A number that ends an axis: 1, 2 or 5 of something. */
function roundUp(v, base) {
	const unit = Math.pow(base, Math.floor(Math.log(v) / Math.log(base)));
	for (const m of [1, 1.5, 2, 3, 4, 5, 6, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500, 512, base])
		if (m * unit >= v)
			return m * unit;
	return v;
}

/* The value at a part, or the one before it that is shown there. */
function valueAt(values, at) {
	for (let i = at; i >= 0 && at - i < GAP; i--)
		if (values[i] !== null)
			return values[i];
	return null;
}

function readAt(chart, at) {
	const {lines, text, bins} = chart.model, ago = (bins - 1 - at) * hist.binNs / 1e9;
	chart.cursor = at;
	chart.mark.setAttribute("visibility", at === null ? "hidden" : "visible");
	chart.when.textContent = at === null ? "" : ago < 15 ? "now" : ago < 120 ? ago + " s ago" :
		(ago / 60).toFixed(ago < 600 ? 1 : 0) + " min ago";
	if (at !== null) {
		const x = at * WIDTH / Math.max(bins - 1, 1);
		chart.mark.setAttribute("x1", x);
		chart.mark.setAttribute("x2", x);
	}
	lines.forEach((l, i) => {
		const v = at === null ? lastOf(l.values) : valueAt(l.values, at);
		if (chart.readings[i])
			chart.readings[i].textContent = v === null ? "–" : text(v);
	});
}

const MAX_LINES = 64, LEGEND = 16;
const made = new Map(); // kind -> chart

function newChart(kind, title) {
	const svg = svgElement("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true"});
	const chart = {svg, mark: svgElement("line", {class: "mark", y1: 0, y2: HEIGHT, visibility: "hidden"}),
		when: make("span", {className: "when"}), high: make("span", {className: "high"}), readings: [], cursor: null,
		legend: make("ul", {className: "lines"})};
	const plot = make("div", {className: "plot"}, svg, chart.high);
	chart.figure = make("div", {className: "chart", tabIndex: 0}, make("div", {className: "title"},
		make("span", {textContent: title}), chart.when), plot, chart.legend);
	chart.figure.setAttribute("role", "group");
	chart.figure.setAttribute("aria-label", title + ": arrow keys read values");
	plot.addEventListener("pointermove", (e) => {
		const box = plot.getBoundingClientRect();
		const at = Math.round((e.clientX - box.left) / box.width * (chart.model.bins - 1));
		readAt(chart, Math.max(0, Math.min(chart.model.bins - 1, at)));
	});
	plot.addEventListener("pointerleave", () => readAt(chart, null));
	chart.figure.addEventListener("keydown", (e) => {
		const step = {ArrowLeft: -1, ArrowRight: 1, Home: -HOUR, End: HOUR, PageUp: -10, PageDown: 10}[e.key];
		if (e.key === "Escape")
			readAt(chart, null);
		if (!step)
			return;
		e.preventDefault();
		const last = chart.model.bins - 1;
		readAt(chart, Math.max(0, Math.min(last, (chart.cursor ?? last) + step)));
	});
	chart.figure.addEventListener("blur", () => readAt(chart, null));
	made.set(kind, chart);
	return chart;
}

function drawChart(kind, title, list, text, {top, base}) {
	const chart = made.get(kind) || newChart(kind, title);
	const lines = list.slice(0, MAX_LINES).map((s) => ({name: s.name, values: newest(s, chartBins)}));
	const most = Math.max(1e-9, ...lines.flatMap((l) => l.values.filter((v) => v !== null)));
	const high = top || roundUp(most * 1.05, base || 10);
	chart.model = {kind, title, lines, text, bins: chartBins, high};
	chart.high.textContent = text(high);
	chart.svg.replaceChildren(...[0.25, 0.5, 0.75].map((y) => svgElement("line", {class: "grid", x1: 0, x2: WIDTH,
		y1: HEIGHT * y, y2: HEIGHT * y})), ...lines.map((l, i) => svgElement("path",
		{class: "line c" + i % COLOURS, d: pathOf(l.values, high)})), chart.mark);
	chart.readings = lines.slice(0, LEGEND).map(() => make("b"));
	chart.legend.replaceChildren(...chart.readings.map((b, i) => make("li", {className: "c" + i % COLOURS},
		make("span", {textContent: lines[i].name}), b)));
	if (list.length > LEGEND)
		chart.legend.append(make("li", {textContent: "and " + (list.length - LEGEND) + " more"}));
	readAt(chart, chart.cursor);
	return chart.figure;
}

const watts = (v) => v.toFixed(0) + " W", celsius = (v) => v.toFixed(0) + " °C", rate = (v) => bytes(v) + "/s";
const CHARTS = [["step", "Time of a step, by rank", (v) => nanoseconds(v), {}],
	["busy", "Devices are busy, by rank", (v) => percent(v), {top: 100}],
	["utilization", "Utilization of devices", (v) => percent(v), {top: 100}],
	["memory_bytes", "Memory of devices", (v) => bytes(v), {base: 1024}],
	["power_w", "Power", watts, {}], ["temperature_c", "Temperature", celsius, {top: 100}],
	["host cpu_percent", "Processors of the host", (v) => percent(v), {top: 100}],
	["host memory_bytes", "Memory of the host", (v) => bytes(v), {base: 1024}],
	["network", "Network of the host", rate, {base: 1024}], ["disk", "Disks of the host", rate, {base: 1024}]];
const TRAFFIC = {"host network_received_bytes_per_s": ["network", "received"],
	"host network_sent_bytes_per_s": ["network", "sent"], "host disk_read_bytes_per_s": ["disk", "read"],
	"host disk_written_bytes_per_s": ["disk", "written"]};

/* The shortest range that shows everything. */
function chooseRange() {
	const all = [...hist.series.values()].map((s) => newest(s, HOUR));
	const first = all.map((v) => v.findIndex((x) => x !== null)).filter((i) => i >= 0);
	const have = first.length ? HOUR - Math.min(...first) : 0;
	chartBins = have > 100 ? HOUR : have > 33 ? 90 : 30;
}

function drawCharts() {
	if (!chosen)
		chooseRange();
	const kinds = new Map(), totals = new Map();
	for (const s of hist.series.values()) {
		const [kind, name] = TRAFFIC[s.kind] || [s.kind, s.name];
		const list = kinds.get(kind) || [];
		if (s.kind.endsWith("memory_total_bytes")) {
			const of = s.kind.replace("_total", "");
			totals.set(of, Math.max(totals.get(of) || 0, lastOf(newest(s, HOUR)) || 0));
		}
		if (newest(s, chartBins).some((v) => v !== null))
			list.push({...s, name});
		kinds.set(kind, list);
	}
	const figures = [];
	for (const [kind, title, text, options] of CHARTS) {
		const list = (kinds.get(kind) || []).sort((a, b) => byNumber(a.name, b.name));
		if (list.length)
			figures.push(drawChart(kind, title, list, text, {...options, top: totals.get(kind) || options.top}));
	}
	// one by one: a chart that was taken out and put back would lose the focus, and the value that is read
	for (const gone of [...$("charts").children].filter((e) => !figures.includes(e)))
		gone.remove();
	figures.forEach((f, i) => $("charts").children[i] === f || $("charts").insertBefore(f, $("charts").children[i] || null));
	$("charts-about").textContent = figures.length ? "Means of ten seconds; the daemon keeps one hour, in " +
		bytes(hist.bytes) + "." : "The first numbers come in a moment.";
	document.querySelectorAll(".range button").forEach((b) =>
		b.setAttribute("aria-pressed", String(Number(b.dataset.bins) === chartBins)));
}

document.querySelector(".range").addEventListener("click", (e) => {
	if (e.target.dataset.bins) {
		chartBins = Number(e.target.dataset.bins);
		chosen = true;
		made.forEach((c) => c.cursor = null);
		drawCharts();
	}
});
