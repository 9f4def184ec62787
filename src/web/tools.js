/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What all parts of the page use. Texts come from processes of anybody: they are only ever set as text. */
"use strict";

const $ = (id) => document.getElementById(id);
const byNumber = (a, b) => String(a).localeCompare(String(b), "en", {numeric: true});

function make(tag, props, ...children) {
	const e = Object.assign(document.createElement(tag), props);
	e.append(...children);
	return e;
}

async function api(fn, body) {
	const r = await fetch("api/v1/" + fn, body === undefined ? {} : {
		method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body),
	});
	const reply = await r.json();
	if (!r.ok)
		throw new Error(reply.error || r.statusText);
	return reply;
}

function scaled(v, base, units) {
	let i = 0;
	for (; Math.abs(v) >= base && i < units.length - 1; i++)
		v /= base;
	return v.toFixed(v >= 100 || i === 0 ? 0 : 1).replace(/\.0$/, "") + " " + units[i];
}
const bytes = (v) => scaled(v, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const nanoseconds = (v) => scaled(v, 1000, ["ns", "µs", "ms", "s"]);
const percent = (v) => v.toFixed(v < 10 ? 1 : 0) + " %";

function duration(s) {
	if (s < 60)
		return Math.round(s) + " s";
	if (s < 3600)
		return Math.floor(s / 60) + " min";
	return s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " days";
}

function chip(state) {
	const kind = {Running: "good", Monitoring: "good", Ready: "busy", Pending: "busy", Busy: "busy",
		Silent: "warn", Uninitialized: "warn"}[state] || "";
	return make("span", {className: "chip " + kind, textContent: state});
}
