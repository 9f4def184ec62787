// Device time of every rank: a strip of steps for each device, and tables of kernels.

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
