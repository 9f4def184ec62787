// Memory over time: stacked bands, steps, the peak, refusals. A drag selects a range, a click a moment.

const STEP_APART = 40; // pixels between lines of steps, at least

class OverTime {
  constructor(memory, state) {
    this.memory = memory;
    this.state = state;
    this.only = null; // the one band that is shown
    this.picture = canvas("Memory over time in stacked bands", (w) => (w < 600 ? 260 : 340), (g, w, h) => this.draw(g, w, h));
    this.legend = el("ul", { class: "legend" });
    this.element = el("div", {}, this.picture.box, this.legend);
    this.listen();
  }

  get bands() { return this.memory.bands(this.state.by, this.state.scope); }
  // What belongs to nothing that was asked for is grey; so are those that are too small.
  colour(band, i) { return band.free ? colours.free : band.rest || band.name.startsWith("(no ") ? colours.rest : colours.bands[i % 12]; }

  area(w, h) { return { left: 62, right: w - 8, top: 22, bottom: h - 38 }; }
  nsAt(x) {
    const a = this.area(this.picture.width, 0), [from, to] = this.state.view();
    return Math.max(from, Math.min(to, from + ((x - a.left) / (a.right - a.left)) * (to - from)));
  }
  xOf(ns, a) {
    const [from, to] = this.state.view();
    return a.left + ((ns - from) / (to - from)) * (a.right - a.left);
  }

  // For each column of pixels the bucket in which most is held; of equal ones that in which most is used.
  columns(a) {
    const m = this.memory, [from, to] = this.state.view(), n = Math.max(1, Math.floor(a.right - a.left));
    const most = m.level(this.state.scope, "most"), out = new Int32Array(n);
    const free = this.bands.find((b) => b.free), unused = free ? free.series : most;
    for (let x = 0; x < n; x++) {
      const first = m.bucketOf(from + (x / n) * (to - from)), last = m.bucketOf(from + ((x + 1) / n) * (to - from) - 1);
      let best = first;
      for (let b = first + 1; b <= last; b++)
        if (most[b] > most[best] || (most[b] === most[best] && unused[b] < unused[best])) best = b;
      out[x] = best;
    }
    return out;
  }

  draw(g, w, h) {
    const a = this.area(w, h), list = (this.list = this.columns(a)), bands = this.bands;
    const most = this.memory.level(this.state.scope, "most");
    const chosen = this.only === null ? bands : bands.filter((b) => b.name === this.only);
    let top = 1;
    for (const b of list) {
      let sum = 0;
      for (const band of chosen) sum += band.series[b];
      top = Math.max(top, sum, this.only === null ? most[b] : 0);
    }
    top *= 1.06;
    this.scale = { a, top };
    this.drawAxes(g, a, top);
    const base = new Float64Array(list.length);
    bands.forEach((band, i) => { if (chosen.includes(band)) this.drawBand(g, a, top, list, band, base, this.colour(band, i)); });
    if (this.only === null) this.drawEnvelope(g, a, top, list, most, base);
    this.drawSteps(g, a, h);
    this.drawMarks(g, a, top);
    this.drawSelection(g, a);
    this.fillLegend(bands);
  }

  drawAxes(g, a, top) {
    g.textAlign = "right";
    for (const v of byteTicks(top, 5)) {
      const y = Math.round(a.bottom - (v / top) * (a.bottom - a.top)) + 0.5;
      g.strokeStyle = colours.line;
      g.beginPath();
      g.moveTo(a.left, y);
      g.lineTo(a.right, y);
      g.stroke();
      g.fillStyle = colours.quiet;
      g.fillText(bytesText(v).replace(/\.0+ /, " "), a.left - 8, y);
    }
    const [from, to] = this.state.view();
    g.textAlign = "center";
    for (const v of timeTicks(from, to, Math.max(2, (a.right - a.left) / 110))) {
      const x = this.xOf(v, a), text = timeTick(v, to), half = g.measureText(text).width / 2;
      g.fillStyle = colours.line;
      g.fillRect(Math.round(x), a.bottom, 1, 5);
      g.fillStyle = colours.quiet;
      g.fillText(text, Math.max(a.left + half, Math.min(a.right - half, x)), a.bottom + 14);
    }
  }

  drawBand(g, a, top, list, band, base, colour) {
    const scale = (a.bottom - a.top) / top;
    g.fillStyle = colour;
    g.beginPath();
    g.moveTo(a.left, a.bottom - base[0] * scale);
    for (let x = 0; x < list.length; x++) {
      const y = a.bottom - (base[x] + band.series[list[x]]) * scale;
      g.lineTo(a.left + x, y);
      g.lineTo(a.left + x + 1, y);
    }
    for (let x = list.length - 1; x >= 0; x--) {
      const y = a.bottom - base[x] * scale;
      g.lineTo(a.left + x + 1, y);
      g.lineTo(a.left + x, y);
      base[x] += band.series[list[x]];
    }
    g.fill();
    this.drawEdge(g, a, scale, list, band, base);
  }

  // Neighbours are told apart by a fine line, too, where there is room: not everybody sees all colours.
  drawEdge(g, a, scale, list, band, base) {
    g.strokeStyle = colours.card;
    g.lineWidth = 0.8;
    g.beginPath();
    for (let x = 0, on = false; x < list.length; x++) {
      const y = a.bottom - base[x] * scale, tall = band.series[list[x]] * scale > 5;
      if (tall && on) g.lineTo(a.left + x, y);
      else if (tall) g.moveTo(a.left + x, y);
      if (tall) g.lineTo(a.left + x + 1, y);
      on = tall;
    }
    g.stroke();
    g.lineWidth = 1;
  }

  // The highest moment of each column, which the bands, at the end of buckets, need not meet.
  // Never below them: what is lost in a pool is counted also when the driver has its memory back.
  drawEnvelope(g, a, top, list, most, base) {
    g.strokeStyle = colours.text;
    g.globalAlpha = 0.45;
    g.beginPath();
    for (let x = 0; x < list.length; x++) {
      const y = a.bottom - (Math.max(most[list[x]], base[x]) / top) * (a.bottom - a.top);
      if (x) g.lineTo(a.left + x, y);
      else g.moveTo(a.left, y);
      g.lineTo(a.left + x + 1, y);
    }
    g.stroke();
    g.globalAlpha = 1;
  }

  drawSteps(g, a, h) {
    const steps = this.memory.stepsOf(this.state.scope), [from, to] = this.state.view();
    const inside = steps.filter((s) => s.end > from && s.start < to);
    if (!inside.length) return;
    const gap = (a.right - a.left) / inside.length, every = roundStride(STEP_APART / gap), y = h - 9;
    let free = a.left;
    g.fillStyle = colours.quiet;
    g.textAlign = "right";
    g.fillText("step", a.left - 8, y);
    g.textAlign = "center";
    inside.forEach((s) => {
      const x = this.xOf(Math.max(s.start, from), a), end = this.xOf(Math.min(s.end, to), a);
      const text = String(s.number), width = g.measureText(text).width, middle = Math.min((x + Math.max(end, x + 1)) / 2, a.right - width / 2);
      const named = s.number % every === 0 && middle - width / 2 >= free;
      if (gap > 5 || named) this.drawTick(g, a, Math.round(x), named);
      if (!named) return;
      g.fillText(text, middle, y);
      free = middle + width / 2 + 12;
    });
  }

  // Where a step begins: below the axis; through the bands, lightly, if the step is named.
  drawTick(g, a, x, through) {
    g.globalAlpha = 0.4;
    g.fillRect(x, a.bottom, 1, 5);
    if (through) {
      g.globalAlpha = 0.28;
      g.fillRect(x, a.top, 1, a.bottom - a.top);
    }
    g.globalAlpha = 1;
  }

  // The scopes whose peaks and refusals are shown.
  marked() { return this.memory.scopesOf(this.state.scope).map((i) => this.memory.model.scopes[i]); }

  drawMarks(g, a, top) {
    const [from, to] = this.state.view(), scopes = this.marked();
    const ooms = this.memory.model.ooms.filter((o) => o.at_ns >= from && o.at_ns <= to && scopes.some((s) => s.pid === o.pid && s.device === o.device))
      .sort((p, q) => p.at_ns - q.at_ns);
    g.fillStyle = colours.bad;
    for (const oom of ooms) g.fillRect(this.xOf(oom.at_ns, a) - 0.75, a.top - 8, 1.5, a.bottom - a.top + 8);
    for (const [x, list] of gathered(ooms, (o) => this.xOf(o.at_ns, a), 170))
      plate(g, `${refusalWords(list)}out of memory: ${bytesText(Math.max(...list.map((o) => o.bytes)))}`, x, a.top - 12, a.left, a.right, colours.bad);
    if (this.state.scope < 0 || this.only !== null) return;
    const s = scopes[0], x = this.xOf(s.peak_ns, a), y = a.bottom - (s.peak_bytes / top) * (a.bottom - a.top);
    if (s.peak_ns < from || s.peak_ns > to) return;
    g.fillStyle = colours.text;
    g.beginPath();
    g.arc(x, y, 4, 0, 7);
    g.fill();
    g.strokeStyle = colours.card;
    g.stroke();
    const text = `peak ${bytesText(s.peak_bytes)}`, half = g.measureText(text).width / 2 + 12;
    // above it; where refusals are said there, beside it
    if (y - 12 >= a.top + 4 || !ooms.length) plate(g, text, x, Math.max(9, y - 13), a.left, a.right, colours.text);
    else plate(g, text, x - 2 * half > a.left ? x - half : x + half, y + 2, a.left, a.right, colours.text);
  }

  drawSelection(g, a) {
    const s = this.dragging || null;
    g.fillStyle = colours.accent;
    if (s) {
      const x0 = this.xOf(Math.min(s.from, s.to), a), x1 = this.xOf(Math.max(s.from, s.to), a);
      g.globalAlpha = 0.18;
      g.fillRect(x0, a.top, x1 - x0, a.bottom - a.top);
      g.globalAlpha = 1;
    }
    if (this.state.at !== null && !s) {
      const x = this.xOf(this.state.at, a);
      if (x >= a.left && x <= a.right) g.fillRect(Math.round(x) - 0.5, a.top, 1.5, a.bottom - a.top);
    }
  }

  fillLegend(bands) {
    const key = `${this.state.by} ${this.state.scope} ${this.only} ${bands.length}`;
    const at = this.state.moment().to;
    if (this.legendKey !== key) {
      this.legendKey = key;
      this.legend.replaceChildren(...bands.map((b, i) => {
        const button = el("button", { type: "button", "aria-pressed": String(this.only === b.name), title: "Show this alone",
          onclick: () => { this.only = this.only === b.name ? null : b.name; this.picture.refresh(); } }, clipped(shown(b.name), 90));
        return el("li", {}, swatch(this.colour(b, i)), button, el("span", { class: "v" }));
      }));
    }
    [...this.legend.children].forEach((li, i) => { li.lastChild.textContent = bytesText(bands[i].series[at]); });
  }

  hover(event) {
    const [x] = place(this.picture, event), ns = this.nsAt(x), bucket = this.columnBucket(x), bands = this.bands;
    const table = el("table", {}), step = this.memory.stepsOf(this.state.scope).find((s) => ns >= s.start && ns < s.end);
    bands.map((b, i) => [b, i]).filter(([b]) => b.series[bucket] > 0).sort((p, q) => q[0].series[bucket] - p[0].series[bucket]).slice(0, 12)
      .forEach(([b, i]) => table.append(el("tr", {}, el("td", {}, swatch(this.colour(b, i)), " " + clipped(shown(b.name), 70)), el("td", {}, bytesText(b.series[bucket])))));
    const sum = bands.reduce((n, b) => n + b.series[bucket], 0);
    const level = Math.max(this.memory.level(this.state.scope)[bucket], sum), most = this.memory.level(this.state.scope, "most")[bucket];
    tip.show(event, `${timeText(ns, 6)}${step ? `, step ${step.number}` : ""}: ${bytesText(level)}`,
      most > level ? `highest around here: ${bytesText(most)}` : null, table);
  }

  columnBucket(x) {
    const list = this.list;
    return list[Math.max(0, Math.min(list.length - 1, Math.floor(x - this.scale.a.left)))];
  }

  listen() {
    const c = this.picture.canvas;
    c.addEventListener("pointerdown", (e) => {
      if (e.button) return;
      const ns = this.nsAt(place(this.picture, e)[0]);
      this.dragging = { from: ns, to: ns, x: e.clientX };
      c.setPointerCapture(e.pointerId);
    });
    c.addEventListener("pointermove", (e) => {
      if (this.dragging) {
        this.dragging.to = this.nsAt(place(this.picture, e)[0]);
        this.picture.refresh();
      }
      this.hover(e);
    });
    const end = (e) => {
      const d = this.dragging;
      this.dragging = null;
      if (!d) return;
      if (Math.abs(e.clientX - d.x) > 4) this.state.setRange(Math.min(d.from, d.to), Math.max(d.from, d.to));
      else this.state.setMoment(d.to);
    };
    c.addEventListener("pointerup", end);
    c.addEventListener("pointercancel", () => { this.dragging = null; this.picture.refresh(); });
    c.addEventListener("pointerleave", () => tip.hide());
    c.addEventListener("dblclick", () => this.state.setRange(null));
    c.addEventListener("keydown", (e) => this.key(e));
  }

  key(e) {
    const [from, to] = this.state.view(), step = (to - from) / 100;
    const at = this.state.at === null ? (from + to) / 2 : this.state.at;
    if (e.key === "ArrowLeft" || e.key === "ArrowRight") {
      const next = Math.max(from, Math.min(to, at + (e.key === "ArrowLeft" ? -step : step)));
      if (e.shiftKey) this.dragging = { from: this.dragging ? this.dragging.from : at, to: next };
      this.state.setMoment(next, e.shiftKey);
    } else if (e.key === "Enter" && this.dragging) {
      const d = this.dragging;
      this.dragging = null;
      this.state.setRange(Math.min(d.from, d.to), Math.max(d.from, d.to));
    } else if (e.key === "Escape") {
      if (this.dragging) { this.dragging = null; this.picture.refresh(); } else if (this.state.at !== null) this.state.setMoment(null);
      else this.state.setRange(null);
    } else return;
    e.preventDefault();
  }
}
