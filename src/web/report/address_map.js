// Which addresses of a pool were in use when. Addresses that were never used are left out, so that the
// pieces that a pool has taken from the driver lie above one another.

class BlockMap {
  constructor(memory, state) {
    this.memory = memory;
    this.state = state;
    this.pool = null;
    this.cache = new Map();
    this.picture = canvas("Addresses in use over time", (w) => (w < 600 ? 260 : 360), (g, w, h) => this.draw(g, w, h));
    this.status = el("p", { class: "quiet", role: "status" });
    this.listen();
  }

  pools() { return this.memory.pools.filter((p) => p && p.map && (this.state.scope < 0 || p.scope === this.state.scope)); }

  // The pool with the most in its blocks, of those that cut from others.
  choose() {
    const list = this.pools();
    if (!list.includes(this.pool)) this.pool = list.find((p) => !p.driver) || list[0] || null;
    return list;
  }

  // Rows of pieces that were used, and for each what is covered when.
  read(pool) {
    if (this.cache.has(pool.number)) return this.cache.get(pool.number);
    const get = (name, signed) => this.memory.pack.array(pool.map.prefix + name, signed);
    const piece = sumUp(get("row.piece")), n = get("row.entries"), bucket = get("change.bucket"), change = get("change.bytes", true);
    const first = new Uint32Array(piece.length + 1);
    for (let r = 0; r < piece.length; r++) {
      first[r + 1] = first[r] + n[r];
      for (let i = first[r] + 1; i < first[r + 1]; i++) bucket[i] += bucket[i - 1];
    }
    const blocks = {};
    for (const name of ["ptr", "bytes", "start", "length", "site", "left", "row", "key"]) blocks[name] = get("block." + name);
    const data = { piece, first, bucket, change, blocks, rows: this.usedRows(piece, first, change, bucket) };
    this.cache.set(pool.number, data);
    return data;
  }

  // A row goes on to the next: those in which nothing is ever covered are gaps. Looked at coarsely.
  usedRows(piece, first, change, bucket) {
    const columns = 256, scale = (columns * this.pool.map.bucket_ns) / this.memory.lengthNs, run = new Float64Array(columns), rows = [];
    let pieces = 0;
    for (let r = 0; r < piece.length; r++) {
      const step = new Float64Array(columns);
      for (let i = first[r]; i < first[r + 1]; i++) step[Math.min(columns - 1, Math.floor(bucket[i] * scale))] += Math.abs(change[i]);
      let used = false, sum = 0;
      const now = new Float64Array(columns);
      for (let i = first[r]; i < first[r + 1]; i++) now[Math.min(columns - 1, Math.floor(bucket[i] * scale))] += change[i];
      for (let c = 0; c < columns; c++) {
        sum += now[c];
        run[c] += sum;
        if (run[c] > 0 || step[c] > 0) used = true;
      }
      const length = (r + 1 < piece.length ? piece[r + 1] : piece[r] + 1) - piece[r];
      const covered = run.some((v) => v > 0);
      if (!used && !covered) continue;
      // what only comes and goes within a column reaches no further than its row
      const size = covered ? length : 1;
      rows.push({ row: r, piece: piece[r], size, at: pieces, gap: rows.length > 0 && rows.at(-1).piece + rows.at(-1).size < piece[r] });
      pieces += size;
    }
    return { list: rows, pieces };
  }

  area(w, h) { return { left: 62, right: w - 8, top: 10, bottom: h - 24 }; }

  // How full each pixel is: bytes covered at the end of its column, out of those it stands for.
  coverage(data, width, height) {
    const [from, to] = this.state.view(), { list, pieces } = data.rows;
    const sum = new Float32Array(width * height), run = new Float64Array(width), size = this.pool.map.piece_bytes;
    const ns = this.pool.map.bucket_ns, column = (b) => Math.max(0, Math.floor(((b * ns - from) / (to - from)) * width));
    let next = 0;
    for (let r = 0; r < data.piece.length; r++) {
      let at = 0;
      const step = new Float64Array(width + 1);
      for (let i = data.first[r]; i < data.first[r + 1]; i++) {
        at = column(data.bucket[i]);
        if (at < width) step[at] += data.change[i];
      }
      for (let x = 0, v = 0; x < width; x++) { v += step[x]; run[x] += v; }
      if (next >= list.length || list[next].row !== r) continue;
      const row = list[next++], top = (row.at / pieces) * height, bottom = ((row.at + row.size) / pieces) * height;
      for (let y = Math.floor(top); y < Math.min(height, Math.ceil(bottom)); y++) {
        const part = Math.min(bottom, y + 1) - Math.max(top, y);
        for (let x = 0; x < width; x++) sum[y * width + x] += (run[x] / size) * part;
      }
    }
    return sum;
  }

  draw(g, w, h) {
    const a = this.area(w, h);
    this.choose();
    if (!this.pool) return;
    const data = this.read(this.pool), width = Math.max(1, Math.floor(a.right - a.left)), height = Math.max(1, Math.floor(a.bottom - a.top));
    const sum = this.coverage(data, width, height), image = new ImageData(width, height);
    const low = rgb(colours.hole), high = rgb(colours.full);
    for (let i = 0; i < sum.length; i++) {
      const v = Math.max(0, Math.min(1, sum[i])), t = v > 0.002 ? 0.25 + 0.75 * v : 0;
      for (let k = 0; k < 3; k++) image.data[i * 4 + k] = low[k] + (high[k] - low[k]) * t;
      image.data[i * 4 + 3] = 255;
    }
    const part = document.createElement("canvas");
    part.width = width;
    part.height = height;
    part.getContext("2d").putImageData(image, 0, 0);
    g.drawImage(part, a.left, a.top, width, height);
    this.drawBlocks(g, a, data);
    this.drawRefusals(g, a, data);
    this.drawAxes(g, a, data);
  }

  // The y of an address; null: it is left out.
  yOf(ptr, a, data) {
    const { list, pieces } = data.rows, piece = ptr / this.pool.map.piece_bytes;
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle].piece <= piece) low = middle + 1;
      else high = middle;
    }
    const row = list[low - 1];
    if (!row) return null;
    return a.top + ((row.at + Math.min(row.size, piece - row.piece)) / pieces) * (a.bottom - a.top);
  }

  xOf(ns, a) {
    const [from, to] = this.state.view();
    return a.left + ((ns - from) / (to - from)) * (a.right - a.left);
  }

  colour(site) {
    if (!site) return colours.rest;
    const name = this.memory.group(this.state.by, site - 1), bands = this.memory.bands(this.state.by, this.state.scope);
    const i = bands.findIndex((b) => b.name === name);
    return i < 0 || name.startsWith("(no ") ? colours.rest : colours.bands[i % 12];
  }

  drawBlocks(g, a, data) {
    const b = data.blocks, [from, to] = this.state.view();
    this.shown = [];
    for (let i = 0; i < b.ptr.length; i++) {
      const start = b.start[i], end = start + b.length[i];
      if (end < from || start > to) continue;
      const top = this.yOf(b.ptr[i], a, data), bottom = this.yOf(b.ptr[i] + b.bytes[i], a, data);
      const left = Math.max(a.left, this.xOf(start, a)), right = Math.min(a.right, this.xOf(end, a));
      if (top === null || bottom - top < 1.2 || right - left < 0.8) continue;
      const found = this.findings(b, i), edge = Math.min(0.5, (bottom - top) / 8);
      g.fillStyle = this.colour(b.site[i]);
      g.fillRect(left, top + edge, right - left, bottom - top - 2 * edge);
      if (found.length) {
        const line = bottom - top < 9 ? 1 : 1.5;
        g.strokeStyle = this.leaked.has(b.row[i]) ? colours.bad : colours.warn;
        g.lineWidth = line;
        g.strokeRect(left + line / 2, top + line / 2, Math.max(1, right - left - line), Math.max(1, bottom - top - line));
        g.lineWidth = 1;
      }
      this.shown.push({ i, left, right, top, bottom });
    }
  }

  get leaked() {
    if (!this.leakRows) this.readFindings();
    return this.leakRows;
  }

  // Blocks that answers name: leaks by the row of their allocation, waste by process and number.
  readFindings() {
    const json = (id) => (this.memory.model.answers.find((x) => x.id === id) || {}).json || {};
    this.leakRows = new Set((json("leaks").leaks || []).flatMap((l) => l.allocations || []).map((x) => x.row));
    this.waste = new Map();
    for (const p of json("inefficient").places || [])
      for (const x of p.examples || []) this.waste.set(`${p.pid} ${x.allocation_id}`, (p.kind || "").replaceAll("_", " "));
  }

  findings(b, i) {
    const waste = this.leaked && this.waste.get(`${this.memory.model.scopes[this.pool.scope].pid} ${b.key[i]}`);
    return [this.leaked.has(b.row[i]) ? "lost: a leak" : null, waste || null].filter(Boolean);
  }

  // A request that was refused: a line when, and a bar as high as it was large.
  drawRefusals(g, a, data) {
    const [from, to] = this.state.view(), bytes = data.rows.pieces * this.pool.map.piece_bytes;
    const scope = this.memory.model.scopes[this.pool.scope];
    const high = (oom) => Math.min(a.bottom - a.top, Math.max(3, (oom.bytes / bytes) * (a.bottom - a.top)));
    const ooms = this.memory.model.ooms.filter((o) => o.pid === scope.pid && o.device === scope.device && o.at_ns >= from && o.at_ns <= to)
      .sort((p, q) => p.at_ns - q.at_ns);
    g.fillStyle = colours.bad;
    for (const oom of ooms) {
      const x = this.xOf(oom.at_ns, a), h = high(oom);
      g.fillRect(x - 0.75, a.top, 1.5, a.bottom - a.top);
      g.globalAlpha = 0.45;
      g.fillRect(x - 5, a.bottom - h, 10, h);
      g.globalAlpha = 1;
    }
    for (const [x, list] of gathered(ooms, (o) => this.xOf(o.at_ns, a), 160)) {
      const most = list.reduce((p, q) => (q.bytes > p.bytes ? q : p));
      plate(g, `${refusalWords(list)}${bytesText(most.bytes)} did not fit`, x, a.bottom - Math.min(high(most) + 12, a.bottom - a.top - 10), a.left, a.right, colours.bad);
    }
  }

  drawAxes(g, a, data) {
    const { list, pieces } = data.rows, bytes = pieces * this.pool.map.piece_bytes;
    g.textAlign = "right";
    for (const v of byteTicks(bytes, 5)) {
      const y = a.bottom - (v / bytes) * (a.bottom - a.top);
      g.fillStyle = colours.quiet;
      g.fillText(bytesText(v).replace(/\.0+ /, " "), a.left - 8, Math.max(a.top + 6, y));
    }
    g.fillStyle = colours.card;
    for (const row of list) if (row.gap) g.fillRect(a.left, a.top + (row.at / pieces) * (a.bottom - a.top) - 0.5, a.right - a.left, 1);
    const [from, to] = this.state.view();
    g.textAlign = "center";
    for (const v of timeTicks(from, to, Math.max(2, (a.right - a.left) / 110))) {
      const text = timeTick(v, to), half = g.measureText(text).width / 2;
      g.fillStyle = colours.quiet;
      g.fillText(text, Math.max(a.left + half, Math.min(a.right - half, this.xOf(v, a))), a.bottom + 13);
    }
  }

  // The addresses at a height.
  addressAt(y, a, data) {
    const { list, pieces } = data.rows, at = ((y - a.top) / (a.bottom - a.top)) * pieces;
    const row = list.findLast((r) => r.at <= at) || list[0];
    return Math.floor((row.piece + Math.min(row.size, at - row.at)) * this.pool.map.piece_bytes);
  }

  describe(i, data) {
    const b = data.blocks, memory = this.memory, site = b.site[i] - 1, marks = this.findings(b, i);
    if (b.left[i] && !marks.length) marks.push("nobody freed it");
    const owner = site >= 0 ? memory.texts[memory.site.owner[site]] : "";
    return [`${bytesText(b.bytes[i])}${owner ? ", " + owner : ""}`, `from ${timeText(b.start[i], 5)} for ${timeText(b.length[i])}${marks.length ? "; " + marks.join(", ") : ""}`,
      `0x${b.ptr[i].toString(16)}`, site >= 0 ? stackLines(memory.tree, memory.site.node[site], 14) : null];
  }

  listen() {
    const c = this.picture.canvas;
    c.addEventListener("pointermove", (e) => {
      if (!this.pool || !this.shown) return;
      const [x, y] = place(this.picture, e), a = this.area(this.picture.width, this.picture.height(this.picture.width));
      const data = this.read(this.pool), hit = this.shown.findLast((b) => x >= b.left && x <= b.right && y >= b.top && y <= b.bottom);
      const [from, to] = this.state.view(), ns = from + ((x - a.left) / (a.right - a.left)) * (to - from);
      if (hit) tip.show(e, ...this.describe(hit.i, data));
      else if (x >= a.left && y >= a.top && y <= a.bottom) tip.show(e, `0x${this.addressAt(y, a, data).toString(16)}`, `at ${timeText(ns, 5)}: small blocks or a hole`);
      else tip.hide();
    });
    c.addEventListener("pointerleave", () => tip.hide());
    c.addEventListener("click", (e) => {
      const a = this.area(this.picture.width, 0), [from, to] = this.state.view();
      this.state.setMoment(Math.max(from, Math.min(to, from + ((place(this.picture, e)[0] - a.left) / (a.right - a.left)) * (to - from))));
    });
    c.addEventListener("keydown", (e) => { if (e.key === "Escape") this.state.setRange(null); });
  }

  updateStatus() {
    if (!this.pool) return;
    const { piece_bytes: piece, others } = this.pool.map, data = this.read(this.pool);
    this.status.textContent = `${this.pool.words}: ${bytesText(data.rows.pieces * piece)} of addresses that were ever used, in pieces of ${bytesText(piece)}; ` +
      `the darker, the fuller. ${countText(data.blocks.ptr.length)} blocks are drawn by themselves` + (others ? `, ${countText(others)} smaller or shorter ones as shades.` : ".");
  }
}

const blockMap = (memory, state) => {
  if (!memory.pools.some((p) => p && p.map)) return null;
  const map = new BlockMap(memory, state);
  const pool = choice("Pool", [], "", (v) => { map.pool = memory.pools[Number(v)]; map.updateStatus(); map.picture.refresh(); });
  const controls = el("div", { class: "controls" }, pool.element), colourKey = el("p", { class: "quiet" }, "Colours are those of the bands. ", swatch("var(--hole)"), " not in use then; a red edge: a leak; an amber one: allocated too early, freed too late or idle.");
  const none = el("p", { class: "quiet", hidden: true }, "The addresses of this device are not drawn: only those of the pools with the most memory are.");
  section("map", "Block map: addresses over time", controls, map.picture.box, map.status, colourKey, none);
  let key = null;
  state.onChange(() => {
    const list = map.choose(), now = list.map((p) => p.number).join();
    if (key !== now) {
      key = now;
      pool.select.replaceChildren(...list.map((p) => el("option", { value: p.number, selected: p === map.pool },
        state.scope < 0 ? `${p.words}, ${scopeName(memory.model.scopes[p.scope])}` : p.words)));
      map.updateStatus();
    }
    none.hidden = list.length > 0;
    for (const e of [controls, map.picture.box, map.status, colourKey]) e.hidden = !list.length;
    map.picture.refresh();
  });
  return map;
};
