// A flame graph, or icicle: boxes as wide as what they and everything they call have. Values are of
// the nodes of the one tree; negative ones, of a difference, count by their size and have another colour.

const LEAST = 0.4; // pixels: narrower boxes are not drawn

class Flame {
  constructor(tree, label, unit) {
    this.tree = tree;
    this.unit = unit; // value -> text
    this.zoomed = 0;
    this.chosen = 0;
    this.up = false; // callers below
    this.wanted = "";
    this.difference = false;
    this.row = 19;
    this.boxes = [];
    this.own = new Float64Array(tree.count);
    this.set(this.own);
    this.picture = canvas(label, () => this.height(), (g, w, h) => this.draw(g, w, h));
    this.line = el("p", { class: "quiet", role: "status" });
    this.search = searchField("Search", (text) => { this.wanted = text.toLowerCase(); this.find(); this.picture.refresh(); });
    this.element = el("div", {}, this.picture.box, this.line);
    this.listen();
  }

  // own: a value for each node; sizes: the same without signs, where parts cancel out.
  set(own, sizes = null) {
    const tree = this.tree;
    this.own = own;
    this.net = tree.total(own);
    this.total = sizes ? tree.total(sizes) : this.net;
    this.difference = sizes !== null;
    if (!this.total[this.zoomed]) this.zoomed = 0;
    this.depth = this.deepest();
    this.find();
    if (this.picture) {
      this.picture.refresh();
      this.updateStatus();
    }
  }

  // Rows below the zoomed node, of boxes that can be seen.
  deepest() {
    const { start, list } = this.tree.index(), least = this.total[this.zoomed] / 2400;
    let depth = 0;
    const stack = [[this.zoomed, 0]];
    while (stack.length) {
      const [node, d] = stack.pop();
      depth = Math.max(depth, d);
      if (d < 200) for (let i = start[node]; i < start[node + 1]; i++) if (this.total[list[i]] > least) stack.push([list[i], d + 1]);
    }
    return depth;
  }

  ancestors() {
    const out = [];
    for (let n = this.zoomed; n > 0; n = this.tree.parent[n]) out.unshift(this.tree.parent[n]);
    return out;
  }

  height() { return Math.max(120, (this.ancestors().length + this.depth + 1) * this.row + 2); }

  find() {
    if (!this.tree.labels) return;
    this.hits = null;
    this.hitTotal = 0;
    if (!this.wanted) return;
    const hit = new Uint8Array(this.tree.count), byFrame = new Map();
    for (let n = 1; n < this.tree.count; n++) {
      const f = this.tree.frame[n];
      if (!byFrame.has(f)) byFrame.set(f, this.tree.label(n).toLowerCase().includes(this.wanted) ? 1 : 0);
      hit[n] = byFrame.get(f);
      // below a hit nothing counts twice
      const above = hit[this.tree.parent[n]];
      if (hit[n] && !above) this.hitTotal += this.total[n];
      if (above) hit[n] |= 2;
    }
    this.hits = hit;
    this.updateStatus();
  }

  colour(node) {
    if (this.hits && this.hits[node] & 1) return colours.found;
    if (this.difference) return this.net[node] > 0 ? colours.more : this.net[node] < 0 ? colours.less : colours.words;
    const kind = this.tree.kindOf(node);
    return kind === KIND_USERS ? colours.users : kind === KIND_LIBRARY ? colours.library : colours.words;
  }

  draw(g, w, h) {
    this.boxes = [];
    g.font = MONO;
    const above = this.ancestors(), rows = above.length + this.depth + 1;
    const y = (level) => (this.up ? (rows - 1 - level) * this.row : level * this.row) + 1;
    above.forEach((node, level) => this.box(g, node, 0, w, y(level), true));
    if (!this.total[this.zoomed]) {
      g.fillStyle = colours.quiet;
      g.font = FONT;
      g.fillText("Nothing was there.", 8, h / 2);
      return;
    }
    const { start, list } = this.tree.index(), scale = w / this.total[this.zoomed];
    const stack = [[this.zoomed, 0, above.length]];
    while (stack.length) {
      const [node, left, level] = stack.pop();
      this.box(g, node, left, this.total[node] * scale, y(level), false);
      const children = [];
      for (let i = start[node]; i < start[node + 1]; i++) if (this.total[list[i]] * scale > LEAST) children.push(list[i]);
      children.sort((p, q) => this.total[q] - this.total[p] || p - q);
      let x = left;
      for (const child of children) {
        stack.push([child, x, level + 1]);
        x += this.total[child] * scale;
      }
    }
  }

  box(g, node, x, w, y, faded) {
    this.boxes.push({ node, x, w, y });
    g.globalAlpha = faded ? 0.55 : this.difference && node ? this.strength(node) : 1;
    g.fillStyle = node ? this.colour(node) : colours.words;
    g.fillRect(x, y, Math.max(w - (w > 3 ? 1 : 0), 0.5), this.row - 1);
    g.globalAlpha = 1;
    if (node === this.chosen && document.activeElement === this.picture.canvas) {
      g.strokeStyle = colours.text;
      g.lineWidth = 2;
      g.strokeRect(x + 1, y + 1, Math.max(w - 3, 1), this.row - 3);
      g.lineWidth = 1;
    }
    if (w < 22) return;
    g.fillStyle = colours["on-colour"];
    g.textAlign = "left";
    g.fillText(fitText(g, this.tree.label(node), w - 8), x + 4, y + this.row / 2);
  }

  strength(node) { return 0.3 + 0.7 * Math.min(1, Math.abs(this.net[node]) / (this.total[node] || 1)); }

  at(event) {
    const [x, y] = place(this.picture, event);
    return this.boxes.find((b) => x >= b.x && x < b.x + b.w && y >= b.y && y < b.y + this.row);
  }

  describe(node) {
    const all = this.total[0], v = this.difference ? signed(this.unit(this.net[node]), this.net[node]) : this.unit(this.total[node]);
    return `${v}, ${percentText(this.total[node], all)}`;
  }

  updateStatus() {
    if (!this.line) return;
    const parts = [];
    if (this.hits) parts.push(`“${this.wanted}” is in ${this.difference ? "" : this.unit(this.hitTotal) + ", "}${percentText(this.hitTotal, this.total[0])}.`);
    if (this.zoomed) parts.push(`${this.tree.label(this.zoomed)}: ${this.describe(this.zoomed)}. Esc shows everything.`);
    else if (!this.difference) parts.push(`${this.unit(this.total[0])} in all.`);
    else parts.push(`${signed(this.unit(this.net[0]), this.net[0])} in all.`);
    this.line.textContent = shown(parts.join(" "));
  }

  zoom(node) {
    this.zoomed = node;
    this.chosen = node;
    this.depth = this.deepest();
    this.updateStatus();
    this.picture.refresh();
  }

  listen() {
    const c = this.picture.canvas;
    c.addEventListener("pointermove", (e) => {
      const b = this.at(e);
      if (!b) { tip.hide(); return; }
      tip.show(e, this.tree.label(b.node), this.describe(b.node) + (this.own[b.node] && this.own[b.node] !== this.net[b.node]
        ? `; itself ${this.unit(this.own[b.node])}` : ""), stackLines(this.tree, this.tree.parent[b.node], 18));
    });
    c.addEventListener("pointerleave", () => tip.hide());
    c.addEventListener("click", (e) => { const b = this.at(e); if (b) this.zoom(b.node === this.zoomed ? 0 : b.node); });
    c.addEventListener("focus", () => this.picture.refresh());
    c.addEventListener("blur", () => this.picture.refresh());
    c.addEventListener("keydown", (e) => this.key(e));
  }

  key(e) {
    const here = this.boxes.find((b) => b.node === this.chosen) || this.boxes[0];
    const down = this.up ? "ArrowUp" : "ArrowDown", back = this.up ? "ArrowDown" : "ArrowUp";
    const widest = (list) => list.reduce((a, b) => (!a || b.w > a.w ? b : a), null);
    let next = null;
    if (!here) return;
    if (e.key === down) next = widest(this.boxes.filter((b) => this.tree.parent[b.node] === here.node));
    else if (e.key === back) next = this.boxes.find((b) => b.node === this.tree.parent[here.node]);
    else if (e.key === "ArrowLeft" || e.key === "ArrowRight") {
      const right = e.key === "ArrowRight", same = this.boxes.filter((b) => b.y === here.y && (right ? b.x > here.x : b.x < here.x));
      next = same.reduce((a, b) => (!a || (right ? b.x < a.x : b.x > a.x) ? b : a), null);
    } else if (e.key === "Enter") this.zoom(this.chosen);
    else if (e.key === "Escape") this.zoom(0);
    else if (e.key === "/") this.search.input.focus();
    else return;
    e.preventDefault();
    e.stopPropagation();
    if (next) {
      this.chosen = next.node;
      this.line.textContent = shown(`${this.tree.label(next.node)}: ${this.describe(next.node)}`);
      this.picture.refresh();
    }
  }
}

const flameKey = (difference, others = "without a call stack") => el("p", { class: "quiet" }, ...(difference
  ? [swatch("var(--more)"), " more, ", swatch("var(--less)"), " less; as wide as what changed"]
  : [swatch("var(--users)"), " your code, ", swatch("var(--library)"), " libraries, ", swatch("var(--words)"), ` ${others}`]));
