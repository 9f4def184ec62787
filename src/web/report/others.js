// Device time of ranks, profiles of stacks, and two recordings side by side.

const PARTS = [["compute", "compute"], ["communication", "comm"], ["copy", "copy"], ["idle", "idle"]];
const ROWS_SHOWN = 32;

// A strip for each device of each rank: its steps, or pieces of time, divided into parts.
class DeviceTime {
  constructor(model, pack) {
    this.model = model;
    this.rows = model.rows.map((r) => {
      const row = { ...r };
      for (const name of ["number", "start", "length", ...PARTS.map(([p]) => p)]) row[name] = pack.array(r.prefix + name);
      row.total = row.length.reduce((a, v) => a + v, 0);
      row.sums = PARTS.map(([p]) => row[p].reduce((a, v) => a + v, 0));
      return row;
    });
    this.first = 0;
    this.strip = 40;
    this.picture = canvas("Device time of every rank, step by step", () => this.shown().length * this.strip + 30, (g, w, h) => this.draw(g, w, h));
    this.picture.canvas.addEventListener("pointermove", (e) => this.hover(e));
    this.picture.canvas.addEventListener("pointerleave", () => tip.hide());
  }

  shown() { return this.rows.slice(this.first, this.first + ROWS_SHOWN); }

  // Its rank says which row it is.
  alone(row) { return this.rows.filter((r) => r.rank === row.rank).length === 1; }

  draw(g, w, h) {
    const left = w < 600 ? 84 : 150, width = w - left - 8, rows = this.shown();
    this.left = left;
    let longest = 1, cells = 1, end = 1;
    for (const r of rows) {
      cells = Math.max(cells, r.length.length);
      for (let i = 0; i < r.length.length; i++) {
        longest = Math.max(longest, r.length[i]);
        end = Math.max(end, r.start[i] + r.length[i]);
      }
    }
    this.scale = { width, cells, end };
    rows.forEach((r, k) => {
      const top = k * this.strip + 4, height = this.strip - 10;
      g.textAlign = "right";
      g.fillStyle = r.slowest ? colours.bad : colours.text;
      g.fillText(fitText(g, w < 600 && r.rank !== null && this.alone(r) ? `rank ${r.rank}` : r.label, left - 14), left - 10, top + height / 2 - (r.slowest ? 6 : 0));
      if (r.slowest) g.fillText("slowest", left - 10, top + height / 2 + 8);
      for (let x = 0; x < width; x++) {
        const [from, to] = this.cellsAt(r, x, width);
        if (to <= from) continue;
        // a gap between steps, where there is room for it
        if (this.model.by === "step" && width / cells > 8 && x + 1 < width && this.cellsAt(r, x + 1, width)[0] !== from) continue;
        let y = top + height, all = 0;
        const sums = [0, 0, 0, 0];
        for (let i = from; i < to; i++) {
          all += r.length[i];
          PARTS.forEach(([p], j) => { sums[j] += r[p][i]; });
        }
        // as high as the mean step is long, of the longest; pieces of time are all of one length
        const high = this.model.by === "step" ? height * Math.min(1, all / (to - from) / longest) : height;
        PARTS.forEach(([, colour], j) => {
          const part = all ? (sums[j] / all) * high : 0;
          g.fillStyle = colours[colour];
          g.fillRect(left + x, y - part, 1, part);
          y -= part;
        });
      }
    });
    this.drawAxis(g, left, width, h);
  }

  // The cells of a row that lie in a column of pixels.
  cellsAt(r, x, width) {
    const { cells, end } = this.scale;
    if (this.model.by === "step") {
      const from = Math.floor((x / width) * cells), to = Math.max(from + 1, Math.floor(((x + 1) / width) * cells));
      return [from, Math.min(to, r.length.length)];
    }
    const at = (ns) => {
      let low = 0, high = r.start.length;
      while (low < high) { const m = (low + high) >> 1; if (r.start[m] + r.length[m] <= ns) low = m + 1; else high = m; }
      return low;
    };
    const from = at((x / width) * end), to = at(((x + 1) / width) * end);
    if (from >= r.start.length || r.start[from] > ((x + 1) / width) * end) return [0, 0];
    return [from, Math.min(r.start.length, Math.max(to, from + 1))];
  }

  drawAxis(g, left, width, h) {
    const first = this.shown()[0];
    g.fillStyle = colours.quiet;
    g.textAlign = "center";
    if (!first) return;
    if (this.model.by === "step") {
      const n = this.scale.cells, every = Math.max(1, Math.ceil(n / Math.max(2, width / 60)));
      for (let i = 0; i < n && i < first.number.length; i += every)
        g.fillText(first.number[i] ? `step ${first.number[i]}` : "", Math.max(left + 20, Math.min(left + width - 20, left + ((i + 0.5) / n) * width)), h - 12);
    } else {
      for (const v of timeTicks(0, this.scale.end, Math.max(2, width / 110)))
        g.fillText(timeTick(v, this.scale.end), Math.max(left + 20, Math.min(left + width - 24, left + (v / this.scale.end) * width)), h - 12);
    }
  }

  hover(e) {
    const [x, y] = place(this.picture, e), r = this.shown()[Math.floor(y / this.strip)];
    const column = Math.floor(x - this.left);
    if (!r || column < 0 || column >= this.scale.width) { tip.hide(); return; }
    const [from, to] = this.cellsAt(r, column, this.scale.width);
    if (to <= from) { tip.hide(); return; }
    let all = 0;
    for (let i = from; i < to; i++) all += r.length[i];
    const table = el("table", {}, ...PARTS.map(([p, colour]) => {
      let sum = 0;
      for (let i = from; i < to; i++) sum += r[p][i];
      return el("tr", {}, el("td", {}, swatch(colours[colour]), " " + p), el("td", {}, timeText(sum)), el("td", {}, percentText(sum, all)));
    }));
    tip.show(e, `${r.label}${r.number[from] ? `, step ${r.number[from]}${to - from > 1 ? ` to ${r.number[to - 1]}` : ""}` : ""}: ${timeText(all)}`, table);
  }
}

const showActivity = (model, pack, number) => {
  const time = new DeviceTime(model, pack), id = number ? `device-${number}` : "device";
  const rows = new Table("Where the time of every rank went", [
    { title: "Rank", kind: "text", of: (r) => r.label + (r.slowest ? " (slowest)" : ""), width: 10 },
    ...PARTS.map(([p], i) => ({ title: p[0].toUpperCase() + p.slice(1), kind: "percent", of: (r) => (r.total ? (100 * r.sums[i]) / r.total : 0), width: 8, meter: i === 0 })),
    { title: "Time", kind: "time", of: (r) => r.total }], { order: 1 });
  rows.set(time.rows);
  const kernels = new Table("Kernels", [
    { title: "Total", kind: "time", of: (k) => k.total_ns, meter: true }, { title: "Name", kind: "text", of: (k) => k.name, width: 18, grow: 3 },
    { title: "Calls", kind: "count", of: (k) => k.calls, width: 6 }, { title: "Mean", kind: "time", of: (k) => (k.calls ? k.total_ns / k.calls : 0), width: 6 },
    { title: "p99", kind: "time", of: (k) => k.p99_ns, width: 6 }, { title: "Part", kind: "text", of: (k) => k.part, width: 8, grow: 0.3 }],
  { tip: (k) => [k.name, `${timeText(k.total_ns)} in ${countText(k.calls)} calls`], empty: "No work of a device." });
  kernels.set(model.kernels);
  const pages = Math.ceil(time.rows.length / ROWS_SHOWN);
  const pager = pages < 2 ? "" : el("div", { class: "controls" }, choice("Rows", [...Array(pages).keys()].map((i) => [i, `${i * ROWS_SHOWN + 1} to ${Math.min(time.rows.length, (i + 1) * ROWS_SHOWN)}`]), 0,
    (v) => { time.first = v * ROWS_SHOWN; time.picture.refresh(); }).element);
  const legend = el("ul", { class: "legend" }, ...PARTS.map(([p, c]) => el("li", {}, swatch(`var(--${c})`), p === "communication" ? "communication that is not hidden behind compute" : p)));
  section(id, number ? `Device time ${number + 1}` : "Device time", el("p", {}, model.answer),
    el("div", { class: "links" }, el("code", {}, model.command), model.text === model.answer ? "" : el("details", {}, el("summary", {}, "in full"), el("pre", { tabindex: "0" }, model.text))),
    time.rows.length ? el("div", {}, pager, time.picture.box, legend) : "", new Tabs([{ title: "Kernels", table: kernels }, { title: "Ranks", table: rows }]).element);
  return { time, kernels, rows };
};
const showActivities = (model, pack) => model.activities.map((a, i) => showActivity(a, pack, i));

// Where most of it was spent: the functions that are innermost most often.
const profileWords = (flame, tree, unit) => {
  const sums = new Map(), all = flame.total[0];
  flame.own.forEach((v, n) => {
    if (!v || !n || tree.kindOf(n) === KIND_WORDS) return;
    const name = tree.label(n).replace(/:\d+\)$/, ")");
    sums.set(name, (sums.get(name) || 0) + v);
  });
  const most = [...sums].sort((p, q) => q[1] - p[1]).slice(0, 3).filter(([, v]) => v > 0.01 * all);
  if (!most.length) return "";
  return `Of ${unit(all)}, ${most.map(([name, v]) => `${percentText(v, all)} are in ${clipped(shown(name), 120)} itself`).join(", ")}.`;
};

const showProfile = (model, pack, tree, number) => {
  const node = pack.array(model.prefix + "node"), value = pack.array(model.prefix + "own"), own = new Float64Array(tree.count);
  const unit = { ns: (v) => timeText(v), bytes: bytesText }[model.unit] || ((v) => `${countText(v)} ${model.unit}`);
  node.forEach((n, i) => { own[n] += value[i]; });
  const flame = new Flame(tree, "Flame graph of a profile", unit), { start, list } = tree.index();
  flame.set(own);
  // processes, and the threads in them, if that is what the tree begins with
  const options = [[0, "all threads"]], walk = (n, depth) => {
    for (let i = start[n]; i < start[n + 1]; i++) {
      const child = list[i];
      if (!flame.total[child] || tree.kindOf(child) !== KIND_WORDS || depth > 1) continue;
      options.push([child, clipped("– ".repeat(depth) + shown(tree.label(child)), 70)]);
      walk(child, depth + 1);
    }
  };
  walk(0, 0);
  const thread = options.length > 1 ? choice("Thread", options.slice(0, 2000), 0, (v) => flame.zoom(Number(v))) : null;
  const turn = el("button", { type: "button", "aria-pressed": "false", onclick: () => {
    flame.up = !flame.up;
    turn.setAttribute("aria-pressed", String(flame.up));
    flame.picture.refresh();
  } }, "Callers below");
  const words = profileWords(flame, tree, unit);
  section(number ? `stacks-${number}` : "stacks", number ? `Stacks ${number + 1}: ${model.title.split("/").pop()}` : `Stacks: ${model.title.split("/").pop()}`,
    words ? el("p", {}, words) : "", el("div", { class: "controls" }, thread ? thread.element : "", turn, flame.search.element), flame.element, flameKey(false, "processes and threads"),
    model.bad ? el("p", { class: "quiet" }, `${countText(model.bad)} parts of the file could not be read.`) : "");
  return flame;
};
const showProfiles = (model, pack, tree) => model.profiles.map((p, i) => showProfile(p, pack, tree, i));

// --- two recordings: the first is the base ---

// Call stacks by function and file: lines move when a program is edited.
const pairedNodes = (tree) => {
  const to = new Int32Array(tree.count), known = new Map();
  for (let n = 1; n < tree.count; n++) {
    const f = tree.frame[n], key = `${to[tree.parent[n]]} ${tree.labels[f] && !tree.name[f] ? tree.labels[f] : tree.name[f]} ${tree.file[f]}`;
    if (!known.has(key)) known.set(key, n);
    to[n] = known.get(key);
  }
  return to;
};

const showDifference = (memories, tree) => {
  const flame = new Flame(tree, "What the second recording has more or less than the first", bytesText), to = pairedNodes(tree);
  const page = { flame, what: "peak" };
  const table = new Table("Call sites of both", [
    { title: "Difference", kind: "signed", of: (r) => r.difference, meter: true }, { title: "Where", kind: "text", of: (r) => r.where, width: 18, grow: 2 },
    { title: "Base", kind: "bytes", of: (r) => r.base }, { title: "Compared", kind: "bytes", of: (r) => r.other }, { title: "Owner", kind: "text", of: (r) => r.owner, width: 10 }],
  { fixed: true, tip: (r) => [r.where, `${bytesText(r.base)}, then ${bytesText(r.other)}`] });
  const said = el("p", {});
  const update = () => {
    const own = new Float64Array(tree.count), rows = new Map(), sums = [0, 0];
    memories.forEach((m, side) => {
      // of each device its own peak
      const v = m.values({ kind: page.what }, false, -1), nodes = m.nodes(v);
      nodes.forEach((x, n) => { if (x) { own[to[n]] += side ? x : -x; sums[side] += x; } });
      for (let s = 0; s < m.count; s++) {
        if (!v.sites[s]) continue;
        const where = (m.texts[m.site.line[s]] || tree.label(m.site.node[s])).replace(/:\d+\)/g, ")"), owner = m.texts[m.site.owner[s]];
        if (!rows.has(where)) rows.set(where, { where, owners: [new Set(), new Set()], base: 0, other: 0 });
        const row = rows.get(where);
        row[side ? "other" : "base"] += v.sites[s];
        if (owner) row.owners[side].add(owner);
      }
    });
    const list = [...rows.values()];
    for (const r of list) {
      r.difference = r.other - r.base;
      // what one of the runs knows better is no difference
      const [base, other] = r.owners.map((o) => [...o].sort().join(", "));
      r.owner = base && other && base !== other ? `${base} → ${other}` : other || base;
    }
    list.sort((a, b) => Math.abs(b.difference) - Math.abs(a.difference));
    flame.set(own, own.map(Math.abs));
    table.sorted = false;
    table.set(list);
    said.textContent = `${page.what === "peak" ? "At their peaks the devices" : "At the end the devices"} held ${bytesText(sums[0])} in the first and ${bytesText(sums[1])} in the second recording: ${signed(bytesText(sums[1] - sums[0]), sums[1] - sums[0])}.`;
    page.sums = sums;
    page.rows = list;
  };
  const what = choice("Memory", [["peak", "at the peaks"], ["end", "left at the end"]], "peak", (v) => { page.what = v; update(); });
  section("difference", "Two recordings", said, el("div", { class: "controls" }, what.element, flame.search.element), flame.element, flameKey(true), table.element);
  update();
  page.table = table;
  return page;
};
