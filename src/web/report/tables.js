// Tables of any length: only the rows that can be seen are elements. Columns: {title, kind, of(row),
// width}; kinds: text, bytes, signed, count, time, percent.

const CELLS = {
  text: (v) => v, bytes: bytesText, count: countText, time: (v) => (v === null ? "–" : timeText(v)),
  signed: (v) => signed(bytesText(v), v), percent: (v) => `${v.toFixed(1)} %`,
};
const ROW = 30;

class Table {
  constructor(label, columns, options = {}) {
    this.columns = columns;
    this.options = options;
    this.rows = [];
    this.order = options.order ?? columns.findIndex((c) => c.kind !== "text");
    this.down = true;
    this.wanted = "";
    this.body = el("div", { class: "body", role: "rowgroup" });
    this.headCells = columns.map((c, i) => el("div", { class: "cell" + (c.kind === "text" ? "" : " n"), role: "columnheader" },
      el("button", { type: "button", onclick: () => this.sortBy(i) }, c.title)));
    this.head = el("div", { class: "row head", role: "row" }, ...this.headCells);
    this.grid = el("div", { class: "grid", role: "table", "aria-label": label, tabindex: "0", onscroll: () => this.fill() },
      el("div", { role: "rowgroup" }, this.head), this.body);
    this.search = searchField("Search", (text) => { this.wanted = text.toLowerCase(); this.arrange(); });
    this.status = el("span", { class: "quiet", role: "status" });
    this.element = el("div", {}, el("div", { class: "controls" }, this.search.element, this.status), this.grid);
    const widths = columns.map((c) => (c.kind === "text" ? `minmax(${c.width || 14}rem, ${c.grow || 1}fr)` : `${c.width || 7.5}rem`)).join(" ");
    this.widths = widths;
    this.head.style.gridTemplateColumns = widths;
    this.grid.addEventListener("keydown", (e) => {
      if (e.key === "/") { this.search.input.focus(); e.preventDefault(); }
    });
  }

  set(rows) {
    this.rows = rows;
    this.arrange();
  }

  sortBy(i) {
    this.down = this.order === i ? !this.down : this.columns[i].kind !== "text";
    this.order = i;
    this.arrange();
  }

  textOf(row) {
    if (row.text === null || row.text === undefined)
      row.text = this.columns.filter((c) => c.kind === "text").map((c) => c.of(row)).join(" ").toLowerCase();
    return row.text;
  }

  arrange() {
    const column = this.columns[this.order], sign = this.down ? -1 : 1;
    this.list = this.wanted ? this.rows.filter((r) => this.textOf(r).includes(this.wanted)) : this.rows.slice();
    if (!this.options.fixed || this.sorted) {
      const value = this.list.map((r) => column.of(r)), list = this.list;
      const order = Uint32Array.from(list.keys()).sort((p, q) => (value[p] < value[q] ? -sign : value[p] > value[q] ? sign : p - q));
      this.list = Array.from(order, (i) => list[i]);
    }
    this.sorted = true;
    this.headCells.forEach((c, i) => {
      c.setAttribute("aria-sort", i === this.order ? (this.down ? "descending" : "ascending") : "none");
      c.firstChild.textContent = this.columns[i].title + (i === this.order ? (this.down ? " ↓" : " ↑") : "");
    });
    const meter = this.columns.find((c) => c.meter);
    this.most = meter ? this.list.reduce((a, r) => Math.max(a, Math.abs(meter.of(r))), 1) : 1;
    this.body.style.height = `${Math.max(1, this.list.length) * ROW}px`;
    this.grid.setAttribute("aria-rowcount", String(this.list.length + 1));
    this.status.textContent = this.list.length === this.rows.length ? `${countText(this.rows.length)} ${this.rows.length === 1 ? "row" : "rows"}`
      : `${countText(this.list.length)} of ${countText(this.rows.length)} rows`;
    this.fill();
  }

  fill() {
    if (!this.list) return;
    const first = Math.max(0, Math.floor(this.grid.scrollTop / ROW) - 4);
    const last = Math.min(this.list.length, first + Math.ceil((this.grid.clientHeight || 480) / ROW) + 10);
    const rows = [];
    for (let i = first; i < last; i++) {
      const r = this.list[i];
      const row = el("div", { class: "row", role: "row", "aria-rowindex": i + 2 }, ...this.columns.map((c) => this.cell(c, r)));
      row.style.gridTemplateColumns = this.widths;
      row.style.top = `${i * ROW}px`;
      if (r.node || this.options.tip) {
        row.addEventListener("pointermove", (e) => tip.show(e, ...this.options.tip(r)));
        row.addEventListener("pointerleave", () => tip.hide());
      }
      rows.push(row);
    }
    if (!rows.length) rows.push(el("div", { class: "empty", role: "row" }, el("span", { role: "cell" }, this.wanted ? "Nothing contains that." : this.options.empty || "Nothing.")));
    this.body.replaceChildren(...rows);
  }

  cell(c, r) {
    const v = c.of(r), text = shown(c.kind === "text" ? clipped(String(v ?? ""), 300) : CELLS[c.kind](v));
    const cell = el("div", { class: "cell" + (c.kind === "text" ? "" : " n") + (c.meter ? " meter" : ""), role: "cell" }, text);
    if (c.indent) cell.style.paddingLeft = `${0.65 + c.indent(r) * 1.1}rem`;
    if (c.meter) {
      const bar = el("i", {});
      bar.style.width = `${Math.min(100, (100 * Math.abs(v)) / this.most)}%`;
      cell.append(bar);
    }
    return cell;
  }
}

// Tables of which one is shown.
class Tabs {
  constructor(tabs) {
    this.tabs = tabs;
    this.bar = el("div", { class: "tabs", role: "group", "aria-label": "Which table" }, ...tabs.map((t, i) => {
      t.button = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.show(i) }, t.title);
      return t.button;
    }));
    this.place = el("div", {});
    this.element = el("div", {}, this.bar, this.place);
    this.show(0);
  }

  show(i) {
    this.current = i;
    this.tabs.forEach((t, k) => t.button.setAttribute("aria-pressed", String(k === i)));
    this.place.replaceChildren(this.tabs[i].note ? el("p", { class: "quiet" }, this.tabs[i].note) : "", this.tabs[i].table.element);
    this.tabs[i].table.fill();
  }
}
