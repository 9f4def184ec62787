/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The job: which rank is slow or hangs, what its devices do, the memory of one that is recorded,
 * and snapshots of its Python. Names come from processes of anybody: they are only ever set as text.
 */
"use strict";

/* --- ranks --- */

const HANG_S = 30, HANG_STEPS = 20; // without a step for so long, and for so many times the usual
let hanging = new Set();

/* Who has ended no step for much longer than a step takes; those that never did are not judged. */
function stuckOf(list, stepNs) {
	const times = list.map(stepNs).filter((v) => v).sort((a, b) => a - b);
	const usual = times.length ? times[times.length >> 1] / 1e9 : 0;
	return new Set(list.filter((p) => p.step_age_s !== null && p.state !== "Silent" &&
		p.step_age_s > Math.max(HANG_S, HANG_STEPS * usual)));
}

function judgeSteps(list, top) {
	hanging = new Set([...stuckOf(list, (p) => top.get(p.pid)?.steps?.mean_ns)].map((p) => p.pid));
}

function noteOf(p) {
	const s = latestTop.slowest;
	if (hanging.has(p.pid))
		return ["bad", "no step for " + duration(p.step_age_s)];
	if (s && s.pid === p.pid)
		return ["warn", "slowest"];
	return null;
}

/* A bar of what its devices did in the last report: kernels, communication, copies, nothing. */
function partsBar(t) {
	if (!t || !t.devices.length)
		return "–";
	const all = t.interval_s * 1e9 * t.devices.length, sum = (key) => t.devices.reduce((n, d) => n + d[key], 0);
	const busy = Math.min(sum("busy_ns"), all), parts = [["kernel", sum("kernel_ns")], ["comm", sum("comm_ns")],
		["copy", sum("copy_ns")]];
	/* what runs at the same time counts for both: the bar is as long as the devices were busy */
	const scale = busy / Math.max(1, parts.reduce((n, [, v]) => n + v, 0));
	const words = parts.map(([name, v]) => name + " " + percent(100 * v / all)).join(", ");
	const bar = make("span", {className: "parts", title: words}, ...parts.map(([name, v]) => {
		const e = make("span", {className: name});
		e.style.width = (100 * v * scale / all).toFixed(1) + "%";
		return e;
	}));
	return make("span", {className: "busy"}, bar, make("span", {textContent: percent(100 * busy / all)}));
}

const nameOf = (p) => p.rank === null || p.rank === undefined ? "process " + p.pid : "rank " + p.rank;
const some = (list) => list.slice(0, 6).join(", ") + (list.length > 6 ? " and " + (list.length - 6) + " more" : "");

function showJobWords(list, top) {
	const words = [], stuck = list.filter((p) => hanging.has(p.pid));
	if (stuck.length)
		words.push(["bad", stuck.length + " of " + list.length + (stuck.length === 1 ? " has" : " have") +
			" ended no step for " + duration(Math.min(...stuck.map((p) => p.step_age_s))) + " or longer: " +
			some(stuck.map(nameOf)) + ". A snapshot shows where they are."]);
	if (!top.size && list.some((p) => p.clients.includes("sonde")))
		words.push(["", "The monitor is off: \"Start monitor\" below shows how long steps take and what devices do."]);
	$("job-words").replaceChildren(...words.map(([kind, text]) =>
		make("p", {className: "note " + kind, textContent: text})));
}

/* --- memory --- */

let memoryPid = null, memoryAsked = 0;

function showMemoryChoice(list) {
	const select = $("mem-pid"), now = select.value, known = [...select.options].map((o) => o.value).join();
	$("memory-section").hidden = !list.length;
	if (known !== list.map((p) => String(p.pid)).join()) {
		select.replaceChildren(...list.map((p) => make("option", {value: p.pid,
			textContent: nameOf(p) + (p.rank === null ? "" : " (" + p.pid + ")")})));
		if (list.some((p) => String(p.pid) === now))
			select.value = now;
	}
	if (memoryPid !== null && !list.some((p) => p.pid === memoryPid))
		memoryPid = null; // what was seen last stays
	$("mem-stop").hidden = memoryPid === null;
}

function memoryLine(c, m) {
	const who = c.pid === null ? "all processes" : nameOf(m.processes.find((p) => p.pid === c.pid) || {pid: c.pid});
	const where = c.device === "cpu" ? "host" : "device " + c.device;
	const tile = make("div", {className: "tile"}, make("div", {className: "name"},
		make("span", {textContent: where + ", " + who, title: where + ", " + who}), make("span")),
	make("div", {className: "value", textContent: bytes(c.bytes)}),
	make("div", {className: "quiet", textContent: "at most " + bytes(c.peak_bytes)}));
	if (c.over_time.length > 1)
		tile.append(sparkline(c.over_time, Math.max(1, c.peak_bytes)));
	return tile;
}

function memoryRow(g, most) {
	const cell = (v, name) => make("td", {className: name || "n", textContent: v});
	return make("tr", {}, cell(bytes(g.bytes)), make("td", {}, make("meter", {className: "bar", max: most || 1,
		value: g.bytes, ariaLabel: "part of the largest"})), cell(g.blocks.toLocaleString("en")),
	cell(bytes(g.allocated_bytes)), cell(g.pool, "kind"), make("td", {className: "command", textContent: g.name,
		title: g.name}));
}

const MEMORY_TITLES = [["Held", "n"], ["", ""], ["Blocks", "n"], ["Allocated so far", "n"], ["Pool", ""], ["From", ""]];

function showMemory(r) {
	const box = $("memory"), m = r.memory;
	box.hidden = false;
	if (!m) {
		const text = r.status ? r.status.replace(/^failed: /, "") : r.why || "Looking for its recording …";
		box.replaceChildren(make("p", {className: "note " + (r.status || r.why ? "warn" : ""), textContent: text}));
		return;
	}
	const busy = m.memory.filter((c) => c.pid !== null && c.peak_bytes >= 1 << 20);
	const lines = [...m.memory.filter((c) => c.pid === null), ...busy.length > 1 ? busy : []].slice(0, 24);
	const most = Math.max(0, ...m.groups.map((g) => g.bytes));
	const old = box.querySelector(".scroll"), scrolled = old ? old.scrollTop : 0;
	const table = make("div", {className: "scroll", tabIndex: 0}, make("table", {}, make("thead", {}, make("tr", {},
		...MEMORY_TITLES.map(([t, c]) => t ? make("th", {scope: "col", className: c, textContent: t}) :
			make("td", {})))), make("tbody", {}, ...m.groups.map((g) => memoryRow(g, most)))));
	table.setAttribute("role", "region");
	table.setAttribute("aria-label", "What holds memory");
	box.replaceChildren(make("div", {}, ...m.answer.map((text) => make("p", {textContent: text}))),
		make("div", {className: "tiles"}, ...lines.map((c) => memoryLine(c, m))), table);
	table.scrollTop = scrolled;
}

async function followMemory() {
	if (memoryPid === null)
		return;
	const asked = ++memoryAsked, by = $("mem-by").value;
	const r = await api("getMemory?pid=" + memoryPid + "&by=" + by);
	if (asked !== memoryAsked)
		return;
	showMemory(r);
	if (r.status || (r.memory && r.memory.state !== "running"))
		memoryPid = null;
	$("mem-stop").hidden = memoryPid === null;
}

async function startMemory() {
	memoryPid = Number($("mem-pid").value);
	try {
		await followMemory();
	} catch (e) {
		showMemory({why: e.message});
	}
}
$("mem-start").addEventListener("click", startMemory);
$("mem-by").addEventListener("change", () => memoryPid === null || startMemory());
$("mem-pid").addEventListener("change", () => memoryPid === null || startMemory());
$("mem-stop").addEventListener("click", () => {
	memoryPid = null;
	$("mem-stop").hidden = true;
});

/* --- snapshots --- */

function groupOf(g, processes) {
	const who = [...new Set(g.threads.map((t) => nameOf(processes.get(t.pid) || t)))];
	const at = g.frames[g.place ?? 0], frame = (f) => f.name + " (" + f.file.split("/").slice(-2).join("/") +
		(f.line ? ":" + f.line : "") + ")";
	const box = make("details", {}, make("summary", {}, make("b", {textContent: g.count + " × "}),
		at ? frame(at) : "no Python", make("span", {className: "quiet", textContent: " " + some(who)})),
	make("ol", {className: "frames"}, ...g.frames.map((f) => make("li", {className: f.home, textContent: frame(f)}))));
	return box;
}

function showSnapshot(s) {
	const processes = new Map(s.processes.map((p) => [p.pid, p]));
	const troubles = s.processes.filter((p) => p.error).map((p) => nameOf(p) + ": " + p.error);
	$("snapshot").replaceChildren(make("p", {className: "note good", textContent: s.answer}),
		...troubles.map((t) => make("p", {className: "quiet", textContent: t})),
		...s.groups.slice(0, 20).map((g) => groupOf(g, processes)));
}

async function takeSnapshot() {
	const meant = selected.size ? [...selected.values()] : shown, box = $("snapshot");
	box.hidden = false;
	if (!meant.length) {
		box.replaceChildren(make("p", {className: "note warn", textContent: "There is no process to look at."}));
		return;
	}
	box.replaceChildren(make("progress", {ariaLabel: "the snapshot is taken"}));
	const taken = await api("takeSnapshot", {pids: meant.slice(0, 64).map((p) => p.pid)});
	let r = taken;
	for (let i = 0; taken.snapshot && i < 300; i++) {
		r = await api("getSnapshot", {snapshot: taken.snapshot});
		if (r.state !== "running")
			break;
		await sleep(200);
	}
	if (r.snapshot && r.snapshot.answer !== undefined)
		showSnapshot(r.snapshot);
	else
		box.replaceChildren(make("p", {className: "note bad", textContent: r.why ||
			(r.status || "It took too long.").replace(/^failed: /, "")}));
}

$("snapshot-form").addEventListener("submit", async (e) => {
	const button = e.target.querySelector("button");
	e.preventDefault();
	button.disabled = true;
	try {
		await takeSnapshot();
	} catch (error) {
		$("snapshot").replaceChildren(make("p", {className: "note bad", textContent: error.message}));
	}
	button.disabled = false;
});
