/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Ranks of several hosts, and orders for them: this daemon has a program ask the others as the user who looks, with that user's
 * certificate. What they say is somebody else's: it is only ever set as text.
 */
"use strict";

let hostsAsked = null; // {hosts, certs_dir} while they are shown
const HOSTS_SHOWN = 512;

/* A rank as the table of this host has it. */
function topOf(r) {
	if (r.busy === null)
		return null;
	const ns = (v) => 1e9 * (v || 0);
	return {interval_s: 1, devices: [{busy_ns: ns(r.busy), kernel_ns: ns(r.kernels), comm_ns: ns(r.communication),
		copy_ns: ns(r.copies)}]};
}

function hostRow(host, r, stuck) {
	const cell = (v, name) => make("td", {className: name || "n", textContent: v ?? "–"});
	const note = stuck.has(r) ? ["bad", "no step for " + duration(r.step_age_s)] : r.slowest ? ["warn", "slowest"] : null;
	return make("tr", {}, cell(host, "host"), cell(r.rank), cell(r.pid), cell(r.device),
		make("td", {}, chip(r.state)), cell(r.current_step < 0 ? null : r.current_step),
		cell(r.step_ns ? nanoseconds(r.step_ns) : null), make("td", {}, partsBar(topOf(r))),
		make("td", {}, note ? make("span", {className: "chip " + note[0], textContent: note[1]}) : ""));
}

function hostsWords(hosts, all, stuck) {
	const good = hosts.filter((h) => h.ok), bad = hosts.filter((h) => !h.ok), words = [];
	const where = ([host, r]) => nameOf(r) + " on " + host, slow = all.find(([, r]) => r.slowest);
	const steps = all.map(([, r]) => r.current_step).filter((s) => s >= 0);
	const total = good.reduce((n, h) => n + h.total, 0);
	for (const h of bad)
		words.push(["bad", h.host + " does not answer: " + h.error]);
	if (stuck.size)
		words.push(["bad", stuck.size + " of " + all.length + (stuck.size === 1 ? " has" : " have") + " ended no step for long: " +
			some(all.filter(([, r]) => stuck.has(r)).map(where)) + "."]);
	if (slow)
		words.push(["warn", where(slow) + " is the slowest: the others wait for it."]);
	words.push(["", good.length + " of " + hosts.length + " hosts answer, with " + total + (total === 1 ? " process" : " processes") +
		(steps.length ? ", in step " + [...new Set([Math.min(...steps), Math.max(...steps)])].join(" to ") : "") + "." +
		(all.length > HOSTS_SHOWN ? " The first " + HOSTS_SHOWN + " are shown." : "")]);
	return words;
}

function showHosts(r) {
	const list = r.hosts || [], box = $("hosts-words"), note = ([kind, text]) => make("p", {className: "note " + kind, textContent: text});
	$("hosts-table").hidden = !list.length;
	if (!list.length) {
		box.replaceChildren(note([r.status || r.why ? "bad" : "", (r.status || r.why || "Asking them …").replace(/^failed: /, "")]));
		return;
	}
	const all = list.flatMap((h) => (h.ranks || []).map((rank) => [h.host, rank]))
		.sort((a, b) => (a[1].rank ?? Infinity) - (b[1].rank ?? Infinity) || byNumber(a[0], b[0]) || a[1].pid - b[1].pid);
	const stuck = stuckOf(all.map(([, rank]) => rank), (rank) => rank.step_ns);
	box.replaceChildren(...hostsWords(list, all, stuck).map(note));
	$("hosts-ranks").replaceChildren(...all.slice(0, HOSTS_SHOWN).map(([host, rank]) => hostRow(host, rank, stuck)));
}

async function followHosts() {
	const asked = hostsAsked;
	if (!asked)
		return;
	let r;
	try {
		r = await api("getHosts", asked);
	} catch (e) {
		r = {why: e.message};
	}
	if (asked === hostsAsked)
		showHosts(r);
}

/* --- orders for them: each host decides what this user may ask of its processes --- */

const onHosts = () => hostsAsked !== null && $("where").value === "hosts";

function showWhere() {
	$("where-line").hidden = !hostsAsked;
	$("snapshot-form").hidden = onHosts();
	showTarget();
}
$("where").addEventListener("change", showWhere);

/* As the options of ctl, see orderHosts in docs/json.md. */
function traceOrder(f, npu) {
	const order = {order: npu ? "nputrace" : "gputrace", path: npu || f.path.endsWith(".json") ? f.path : f.path + ".json",
		level: f.level, with_stack: f.stack, record_shapes: f.shapes, profile_memory: f.memory};
	if (f.by === "ms")
		order.duration_ms = Number(f.ms);
	else
		order.iterations = Number(f.steps);
	if (npu)
		order.start_step = f.by === "ms" ? -1 : Number(f.first);
	return order;
}
function monitorOrder() {
	return {order: "monitor", interval_s: Number($("m-interval").value) || 60,
		duration_s: Number($("m-duration").value) || 0, kinds: kindsChosen()};
}

/* What a host has done, a line each. */
function orderLines(h) {
	const pieces = [h.error || h.state, h.note].filter((t) => t).join(": ");
	return [h.host + ": " + pieces, ...(h.wait || []).map((w) => h.host + ", process " + w.pid + ": " +
		(w.state === "done" && w.path ? w.path : w.state + (w.why ? ": " + w.why : "")))];
}

function showOrder(r) {
	const list = r.hosts || [], good = list.filter((h) => h.state === "triggered");
	const n = good.reduce((sum, h) => sum + (h.triggered ?? 0), 0), bad = list.flatMap((h) => h.wait || []).some((w) => w.state !== "done");
	if (!list.length)
		showResult("bad", (r.status || r.why || "The hosts did not answer.").replace(/^failed: /, ""));
	else
		showResult(!good.length ? "bad" : bad || good.length < list.length ? "warn" : "good", good.length + " of " + list.length +
			(list.length === 1 ? " host has" : " hosts have") + " carried it out, in " + n + (n === 1 ? " process." : " processes."),
			list.flatMap(orderLines).slice(0, HOSTS_SHOWN));
}

async function orderHosts(form, order) {
	const buttons = form.querySelectorAll("button");
	buttons.forEach((b) => b.disabled = true);
	showResult("", "The hosts are asked, and waited for … ");
	$("result").append(make("progress", {ariaLabel: "the hosts are waited for"}));
	try {
		let r = await api("orderHosts", {...hostsAsked, ...order});
		const number = r.order;
		for (let i = 0; number && i < 300; i++) {
			r = await api("getOrder?order=" + number);
			if (r.state !== "running")
				break;
			await sleep(500);
		}
		showOrder(r);
	} catch (e) {
		showResult("bad", "The daemon refused: " + e.message);
	}
	buttons.forEach((b) => b.disabled = false);
}

/* What was typed last time; a browser may keep nothing. */
const HOSTS_KEY = "sonde hosts";
try {
	const last = JSON.parse(localStorage.getItem(HOSTS_KEY)) || {};
	$("hosts-names").value = last.hosts || "";
	$("hosts-certs").value = last.certs_dir || "";
} catch {
	/* then it is typed again */
}

$("hosts-form").addEventListener("submit", (e) => {
	e.preventDefault();
	hostsAsked = {hosts: $("hosts-names").value.trim(), certs_dir: $("hosts-certs").value.trim()};
	try {
		localStorage.setItem(HOSTS_KEY, JSON.stringify(hostsAsked));
	} catch {
		/* as above */
	}
	$("hosts-stop").hidden = false;
	showWhere();
	showHosts({});
	followHosts();
});
$("hosts-stop").addEventListener("click", () => {
	hostsAsked = null;
	$("hosts-stop").hidden = true;
	showWhere();
	$("hosts-words").replaceChildren();
	$("hosts-table").hidden = true;
});
