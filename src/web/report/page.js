// Puts the page together, and holds what its pictures have in common: which device, which range of
// time, which moment.

class State {
  constructor(memory) {
    this.memory = memory;
    this.by = memory.bestGrouping();
    this.scope = memory.model.scopes.reduce((best, s, i, all) => (best < 0 || s.peak_bytes > all[best].peak_bytes ? i : best), -1);
    this.range = null; // [from, to] ns; null: everything
    this.at = null; // a moment that was chosen, ns
    this.what = "peak";
    this.unit = "bytes";
    this.listeners = [];
  }

  onChange(f) { this.listeners.push(f); }
  changed(quick = false) {
    const begin = performance.now();
    for (const f of this.listeners) f(quick);
    this.answered = performance.now() - begin;
  }
  view() { return this.range || [this.memory.startNs, this.memory.lengthNs]; }
  buckets() { return this.view().map((ns) => this.memory.bucketOf(ns)); }

  setRange(from, to) {
    const least = this.memory.bucketNs * 4;
    this.range = from === null ? null : to - from < least ? [Math.max(0, from - least), from + least] : [from, to];
    if (this.range && this.range[0] <= 0 && this.range[1] >= this.memory.lengthNs) this.range = null;
    if (this.at !== null && this.range && (this.at < this.range[0] || this.at > this.range[1])) this.at = null;
    if (this.range && (this.what === "peak" || this.what === "end")) this.what = "highest";
    if (!this.range && this.what === "highest" && this.at === null) this.what = "peak";
    if (this.what === "at" && this.at === null) this.what = this.range ? "highest" : "peak";
    this.changed();
  }
  setMoment(ns, quick = false) {
    this.at = ns;
    this.what = ns === null ? (this.range ? "highest" : "peak") : "at";
    this.changed(quick);
  }

  // What the flame graph and the tables are about.
  moment() {
    const [from, to] = this.buckets(), m = this.memory;
    switch (this.what) {
    case "peak": return { kind: "peak", to: this.scope >= 0 ? m.bucketOf(m.model.scopes[this.scope].peak_ns) : m.highest(-1, 0, m.buckets - 1) };
    case "end": return { kind: "end", to: m.buckets - 1 };
    case "highest": {
      const b = m.highest(this.scope, from, to);
      const exact = this.scope >= 0 && b === m.bucketOf(m.model.scopes[this.scope].peak_ns);
      return exact ? { kind: "peak", to: b } : { kind: "at", to: b };
    }
    case "at": return { kind: "at", to: m.bucketOf(this.at ?? 0) };
    case "last": return { kind: "at", to };
    case "growth": return { kind: "growth", ...this.growthSpan() };
    default: return { kind: this.what, from, to };
    }
  }
  // From before one bucket to the end of another. Of everything: from the first step's end to the last one's beginning,
  // since a leak is gone when the job has ended, and what it began with is no growth.
  growthSpan() {
    const [from, to] = this.buckets(), m = this.memory, steps = this.range ? [] : m.stepsOf(this.scope);
    if (steps.length < 3) return { from, to };
    const first = m.bucketOf(steps[0].end) + 1;
    return { from: first, to: Math.max(first, m.bucketOf(steps.at(-1).start) - 1) };
  }
  momentWords() {
    const m = this.moment(), [from, to] = this.view(), at = timeText(m.to * this.memory.bucketNs, 5);
    const words = { peak: this.scope < 0 ? "of each device at its peak" : `at the peak, ${timeText(this.memory.model.scopes[this.scope].peak_ns, 5)} after the start`,
      end: "left at the end", at: `${at} after the start`, allocated: `allocated from ${timeText(from, 5)} to ${timeText(to, 5)}`,
      growth: `more at ${at} than at ${timeText((m.from ?? 0) * this.memory.bucketNs, 5)}` };
    return words[m.kind];
  }
}

// What tells most: one of which no part is nearly all.
Memory.prototype.bestGrouping = function () {
  for (const by of ["module", "owner", "type"]) {
    const sums = this.bands(by, -1).filter((b) => !b.free).map((b) => b.series.reduce((a, v) => a + v, 0));
    const all = sums.reduce((a, v) => a + v, 0);
    if (sums.length > 2 && Math.max(...sums) < 0.85 * all) return by;
  }
  return this.site.line.some((v) => v > 0) ? "line" : "owner";
};

const scopeName = (s) => `${s.device === "cpu" ? "host memory" : `device ${s.device}`}, ${s.process}`;

const showHead = (model) => {
  document.getElementById("title").textContent = clipped(shown(model.title), 160);
  const about = model.memory.filter((m) => m.rows).map((m) => {
    const pids = new Set(m.scopes.map((s) => s.pid)).size, when = new Date(m.start_ms);
    return `${isNaN(when) || m.start_ms < 1e11 ? "" : when.toISOString().slice(0, 19).replace("T", " ") + " UTC, "}${timeText(m.length_ns)}, ` +
      `${pids} ${pids === 1 ? "process" : "processes"}, ${countText(m.rows)} rows`;
  });
  document.getElementById("about").textContent = shown(about.join(" · "));
  document.getElementById("footer").textContent = `Made by sonde ${model.version}.${model.redacted ? " Names of hosts, users, paths and arguments were left out." : ""}`;
};

const PICTURE_OF = { oom: "memory", leaks: "tables", owners: "flame", peak: "flame", inefficient: "tables", gaps: "memory" };
const isInPieces = (a) => a.id === "oom" && (a.json?.incidents || []).some((i) => i.verdict === "fragmentation");
const pictureOf = (a) => (isInPieces(a) ? "map" : PICTURE_OF[a.id]);

// What was found was found, also where something else was not seen: as the exit status of --fail-on has it.
const stateOf = (a) => {
  if (a.id === "owners" || a.id === "peak") return a.judged ? "" : "unknown";
  if (a.id === "gaps" && a.judged && a.findings) return "uneven";
  if (a.id === "leaks" && !a.findings && (a.json?.grows_over_time || []).length) return "grows";
  return a.findings && a.id !== "gaps" ? "found" : a.judged ? "fine" : "unknown";
};

// What was found comes first, what is fine last.
const rankOf = (a) => (a.id === "owners" || a.id === "peak" ? 2 : { found: 1, grows: 1.5, uneven: 3, unknown: 4, fine: 5 }[stateOf(a)]);

// What devices did, from the sentence on that names the slowest rank, if there is one.
const deviceAnswer = (a, i) => {
  const slow = a.rows.some((r) => r.slowest), at = a.answer.indexOf(" is the slowest");
  const words = slow && at > 0 ? a.answer.slice(a.answer.lastIndexOf(". ", at) + 1).trim() : a.answer;
  return el("div", { class: "answer " + (slow ? "found" : ""), "data-id": "device" }, el("span", { class: "state" }, slow ? "found" : "devices"),
    el("div", {}, el("p", { class: "answer-text" }, words), el("div", { class: "links" }, el("code", {}, a.command), el("a", { href: i ? `#device-${i}` : "#device" }, "picture"))));
};

const showAnswers = (memories, held, activities) => {
  const list = el("div", { class: "answers" }), notes = [];
  if (!held) {
    list.append(...activities.map(deviceAnswer));
    if (memories.length) notes.push(el("p", { class: "quiet" }, "No memory was recorded, so nothing about it is shown."),
      ...memories.flatMap((m) => m.model.notes).map((n) => el("p", { class: "quiet" }, n)));
    if (memories.length || activities.length) section("answers", "Answers", list, ...notes);
    return;
  }
  memories.forEach((memory, i) => {
    if (memories.length > 1) list.append(el("h3", {}, memory.model.title));
    for (const note of memory.model.notes) notes.push(el("p", { class: "quiet" }, note));
    if (i === 0 && memories.length === 1) list.append(...activities.map(deviceAnswer).filter((e) => e.classList.contains("found")));
    for (const a of [...memory.model.answers].sort((p, q) => rankOf(p) - rankOf(q))) {
      const state = stateOf(a), words = { unknown: "not known", "": a.id }[state] || state;
      const brief = state === "fine" || state === "unknown", kind = words === "uneven" || words === "grows" ? "unknown" : state;
      list.append(el("div", { class: `answer ${kind}${brief ? " brief" : ""}`, "data-id": a.id }, el("span", { class: "state" }, words), el("div", {}, el("p", { class: "answer-text" }, a.answer),
        el("div", { class: "links" }, el("code", {}, a.command), i ? "" : el("a", { href: "#" + pictureOf(a), onclick: () => jump(a.id) }, "picture"),
          a.text === a.answer && !brief ? "" : el("details", {}, el("summary", {}, "in full"), el("pre", { tabindex: "0" }, a.text))))));
    }
  });
  if (memories.length > 1 || !list.querySelector('.found[data-id="device"]'))
    list.append(...(memories.length > 1 && activities.length ? [el("h3", {}, "Devices")] : []), ...activities.map(deviceAnswer));
  if (list.children.length > 1) section("answers", "Answers", list, ...notes);
};
let jump = () => {};

const controlBar = (memory, state) => {
  const scopes = memory.model.scopes;
  const order = scopes.map((_, i) => i).sort((a, b) => scopes[b].peak_bytes - scopes[a].peak_bytes);
  const options = order.map((i) => [i, clipped(scopeName(scopes[i]), 60)]);
  if (scopes.length > 1) options.push([-1, "all together"]);
  const device = choice("Device", options, state.scope, (v) => { state.scope = Number(v); state.changed(); });
  const by = choice("Bands by", [["owner", "owner"], ["type", "type"], ["module", "module"], ["line", "line"], ["pool", "pool"]], state.by,
    (v) => { state.by = v; state.changed(); });
  const status = el("span", { class: "quiet", id: "range", role: "status" });
  const reset = el("button", { type: "button", onclick: () => { state.at = null; state.setRange(null); } }, "Everything");
  const bar = el("div", { id: "bar", class: "bar", role: "group", "aria-label": "What all pictures of memory show" }, device.element, by.element,
    el("div", { class: "range" }, status, reset));
  state.onChange(() => {
    const [from, to] = state.view();
    status.textContent = state.range ? `${timeText(from, 5)} to ${timeText(to, 5)} of ${timeText(memory.lengthNs)}` : `all ${timeText(memory.lengthNs)}`;
    reset.disabled = !state.range && state.at === null;
    device.select.value = String(state.scope);
  });
  return bar;
};

const MOMENTS = [["peak", "at the peak"], ["highest", "highest in the range"], ["at", "at the chosen moment"], ["last", "at the end of the range"],
  ["end", "left at the end"], ["allocated", "allocated in the range"], ["growth", "growth over the range"]];

const memoryFlame = (memory, state) => {
  const flame = new Flame(memory.tree, "Flame graph of memory by call stack", (v) => (state.unit === "count" ? countText(v) + " blocks" : bytesText(v)));
  const what = choice("Memory", MOMENTS, state.what, (v) => { state.what = v; if (v === "at" && state.at === null) state.at = (state.view()[0] + state.view()[1]) / 2; state.changed(); });
  const unit = choice("By", [["bytes", "bytes"], ["count", "blocks"]], state.unit, (v) => { state.unit = v; state.changed(); });
  const turn = el("button", { type: "button", "aria-pressed": "false", onclick: () => {
    flame.up = !flame.up;
    turn.setAttribute("aria-pressed", String(flame.up));
    flame.picture.refresh();
  } }, "Callers below");
  const status = el("p", { class: "quiet" }), key = el("div", {});
  let shownKey = null;
  state.onChange(() => {
    const moment = state.moment(), values = memory.values(moment, state.unit === "count", state.scope);
    const own = memory.nodes(values), growth = moment.kind === "growth";
    what.select.value = state.what;
    let sizes = null;
    if (growth) sizes = memory.nodes({ sites: values.sites.map(Math.abs), free: values.free });
    flame.set(own, sizes);
    status.textContent = shown(`Memory ${state.momentWords()}, by call stack.`);
    if (shownKey !== growth) key.replaceChildren(flameKey(growth));
    shownKey = growth;
  });
  section("flame", "Who holds it: flame graph", el("div", { class: "controls" }, what.element, unit.element, turn, flame.search.element), status, flame.element, key);
  return flame;
};

// Sites as rows of a table, of the moment.
const siteRows = (memory, state) => {
  const moment = state.moment(), now = memory.values(moment, false, state.scope).sites, [from, to] = state.buckets(), span = state.growthSpan(), rows = [];
  const blocks = moment.kind === "growth" || moment.kind === "allocated" ? null : memory.values(moment, true, state.scope).sites;
  const wanted = new Set(memory.scopesOf(state.scope));
  for (let s = 0; s < memory.count; s++) {
    if (!wanted.has(memory.site.scope[s])) continue;
    const allocated = memory.at("allocated", s, to) - memory.at("allocated", s, from - 1);
    const growth = memory.at("bytes", s, span.to) - memory.at("bytes", s, span.from - 1);
    if (!now[s] && !allocated && !growth) continue;
    rows.push({ site: s, bytes: now[s], blocks: blocks ? blocks[s] : memory.at("blocks", s, to), allocated, growth });
  }
  return rows;
};

const memoryTables = (memory, state) => {
  const where = (r) => memory.where(r.site);
  const sites = new Table("Call sites", [
    { title: "Held", kind: "bytes", of: (r) => r.bytes, meter: true, width: 6.5 }, { title: "Where", kind: "text", of: where, width: 17, grow: 2 },
    { title: "Blocks", kind: "count", of: (r) => r.blocks, width: 6 },
    { title: "Allocated", kind: "bytes", of: (r) => r.allocated }, { title: "Growth", kind: "signed", of: (r) => r.growth },
    { title: "Owner", kind: "text", of: (r) => memory.texts[memory.site.owner[r.site]], width: 11 },
    ...(memory.site.module.some((v) => memory.texts[v]) ? [{ title: "Module", kind: "text", of: (r) => memory.texts[memory.site.module[r.site]], width: 9 }] : [])],
  { tip: (r) => [where(r), `${bytesText(r.bytes)} in ${countText(r.blocks)} blocks`, stackLines(memory.tree, memory.site.node[r.site])], empty: "Nothing was allocated then." });
  const owners = new Table("Owners", [
    { title: "Bytes", kind: "bytes", of: (r) => r.bytes, meter: true }, { title: "Share", kind: "percent", of: (r) => r.share, width: 6 },
    { title: "Owner", kind: "text", of: (r) => r.name, indent: (r) => r.depth - 1, width: 16 }, { title: "Path", kind: "text", of: (r) => r.path, width: 14 }],
  { fixed: true, tip: (r) => [r.path, bytesText(r.bytes)] });
  const answer = (id) => (memory.model.answers.find((a) => a.id === id) || { json: {} }).json || {};
  const tabs = [{ title: "Call sites", table: sites, id: "sites" }, { title: "Owners", table: owners, id: "owners" },
    { title: "Leaks", table: leakTable(answer("leaks")), id: "leaks", note: "Places that lose memory, and what is kept without growing, over the whole recording." },
    { title: "Waste", table: wasteTable(answer("inefficient")), id: "waste", note: "Held while nobody used it: allocated too early, freed too late, idle in between." }];
  state.onChange((quick) => {
    if (quick) return;
    sites.set(siteRows(memory, state));
    const values = memory.values(state.moment(), false, state.scope), root = ownerTree(memory, values), rows = [];
    const walk = (node) => [...node.children.values()].sort((a, b) => b.bytes - a.bytes).forEach((c) => {
      rows.push({ name: c.name, path: c.path, bytes: c.bytes, depth: c.depth, share: root.bytes ? (100 * c.bytes) / root.bytes : 0 });
      walk(c);
    });
    walk(root);
    owners.sorted = false;
    owners.set(rows);
  });
  const all = new Tabs(tabs);
  section("tables", "Tables", all.element);
  jump = (id) => {
    const at = tabs.findIndex((t) => t.id === { leaks: "leaks", inefficient: "waste" }[id]);
    if (at >= 0) all.show(at);
  };
  return { tabs: all, sites, owners };
};

const leakTable = (json) => {
  const rows = [...(json.places || []).map((p) => ({ ...p, what: "lost" })),
    ...(json.kept || []).filter((p) => p.kind !== "held_by_pool") // the blocks inside are judged
      .map((p) => ({ ...p, what: { once: "kept once", stopped: "has stopped", rolling: "rolls" }[p.kind] || p.kind })),
    ...(json.grows_over_time || []).map((p) => ({ ...p, what: `${p.confidence} growth` }))];
  const table = new Table("Leaks", [
    { title: "Bytes", kind: "bytes", of: (r) => r.bytes || 0, meter: true, width: 6.5 }, { title: "Where", kind: "text", of: (r) => r.where || "(no call stack)", width: 17, grow: 2 },
    { title: "Blocks", kind: "count", of: (r) => r.blocks || 0, width: 6 },
    { title: "Per step", kind: "bytes", of: (r) => r.bytes_per_step || 0 }, { title: "Steps", kind: "count", of: (r) => r.steps || 0, width: 5 },
    { title: "What", kind: "text", of: (r) => r.what, width: 7, grow: 0.3 },
    { title: "Pool", kind: "text", of: (r) => `${r.pool || ""}, ${r.device === "cpu" ? "host" : "device " + r.device}, process ${r.pid}`, width: 13 }],
  { tip: (r) => [r.where || "(no call stack)", `${bytesText(r.bytes || 0)} in ${countText(r.blocks || 0)} blocks`,
    el("ol", { class: "stack" }, ...[...(r.python_stack || []), ...(r.c_stack || [])].slice(0, 16).map((l) => el("li", {}, clipped(l, 300))))], empty: "Nothing is lost or kept." });
  table.set(rows);
  return table;
};

const wasteTable = (json) => {
  const table = new Table("Waste", [
    { title: "Bytes", kind: "bytes", of: (r) => r.bytes || 0, meter: true }, { title: "Blocks", kind: "count", of: (r) => r.blocks || 0, width: 6 },
    { title: "At the peak", kind: "bytes", of: (r) => r.at_peak_bytes || 0 }, { title: "Longest, calls", kind: "count", of: (r) => r.longest_calls || 0 },
    { title: "What", kind: "text", of: (r) => (r.kind || "").replaceAll("_", " "), width: 11, grow: 0.4 },
    { title: "Where", kind: "text", of: (r) => r.where || "(no call stack)", width: 18, grow: 2 }],
  { tip: (r) => [r.where || "(no call stack)", el("ol", { class: "stack" }, ...[...(r.python_stack || []), ...(r.c_stack || [])].slice(0, 16).map((l) => el("li", {}, clipped(l, 300))))],
    empty: "No waste was found, or accesses were not recorded (--analysis=inefficient)." });
  table.set(json.places || []);
  return table;
};

const showMemory = (memory, several) => {
  const state = new State(memory), chart = new OverTime(memory, state);
  document.getElementById("main").append(controlBar(memory, state));
  section("memory", several ? `Memory over time: ${memory.model.title.split("/").pop()}` : "Memory over time", chart.element);
  state.onChange(() => chart.picture.refresh());
  const flame = memoryFlame(memory, state), map = blockMap(memory, state), tables = memoryTables(memory, state);
  state.changed();
  return { state, chart, flame, tables, map };
};

const chooseTheme = () => {
  const button = document.getElementById("theme"), root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const set = (dark) => {
    root.classList.toggle("dark", dark);
    button.setAttribute("aria-pressed", String(dark));
    readColours();
    for (const p of pictures) p.refresh();
  };
  button.addEventListener("click", () => set(!root.classList.contains("dark")));
  system.addEventListener("change", () => set(system.matches));
  matchMedia("print").addEventListener("change", (e) => set(!e.matches && system.matches));
  set(system.matches);
};

const keyboard = () => {
  const help = document.getElementById("help"), button = document.getElementById("keys");
  const toggle = () => {
    help.hidden = !help.hidden;
    button.setAttribute("aria-expanded", String(!help.hidden));
  };
  button.addEventListener("click", toggle);
  addEventListener("keydown", (e) => {
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) || e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    if (e.key === "/") {
      const field = document.querySelector("#flame input[type=search], main input[type=search]");
      if (field) { field.focus(); e.preventDefault(); }
    } else if (e.key === "?") toggle();
    else if (e.key === "Escape") tip.hide();
  });
};

const start = async () => {
  const begin = performance.now();
  chooseTheme();
  keyboard();
  const waiting = document.getElementById("waiting");
  try {
    const pack = new Pack(await unpack()), model = pack.model, tree = new Tree(pack);
    const memories = model.memory.map((m) => new Memory(pack, m, tree));
    waiting.remove();
    showHead(model);
    // a recording that has no memory: other things, if there are any, are the page
    const held = memories.some((m) => m.count);
    showAnswers(memories, held, model.activities);
    const page = { model, tree, memories, pictures };
    if (held && memories.length === 2) page.compared = showDifference(memories, tree);
    if (held && memories.length) Object.assign(page, showMemory(memories[memories.length === 2 ? 1 : 0], memories.length > 1));
    page.activities = showActivities(model, pack);
    page.profiles = showProfiles(model, pack, tree);
    if (model.flame) {
      for (const id of ["memory", "map", "tables", "nav"]) document.getElementById(id)?.setAttribute("hidden", "");
      // what is chosen there is of the pictures that are not shown
      for (const e of document.querySelectorAll("#bar .range, #bar .field + .field")) e.hidden = true;
      if (!memories.some((m) => m.model.scopes.length > 1)) document.getElementById("bar")?.setAttribute("hidden", "");
    }
    let width = 0;
    new ResizeObserver(([entry]) => { // heights follow from widths, never the other way
      const now = Math.round(entry.contentRect.width);
      if (now === width) return;
      width = now;
      requestAnimationFrame(paintAll);
    }).observe(document.getElementById("main"));
    paintAll();
    page.startedMs = performance.now() - begin;
    window.sondeReport = page;
  } catch (e) {
    waiting.textContent = `This page cannot be shown: ${e.message}. It needs a browser from 2023 on.`;
    waiting.className = "note";
    throw e;
  }
};
start();
