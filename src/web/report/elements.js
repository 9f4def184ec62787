// What pictures and tables are made of: words for numbers, elements, colours, canvases, the tip beside the pointer. Texts of
// jobs only ever become text nodes or letters on a canvas.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const bytesText = (v) => {
  const sign = v < 0 ? "−" : "";
  let n = Math.abs(v), unit = 0;
  while (n >= 1024 && unit < UNITS.length - 1) { n /= 1024; unit++; }
  return `${sign}${unit ? n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0) : Math.round(n)} ${UNITS[unit]}`;
};
const countText = (v) => (v < 0 ? "−" : "") + Math.abs(Math.round(v)).toLocaleString("en-US");
const signed = (text, v) => (v > 0 ? "+" + text : text);
const TIMES = [[1e3, "ns", 1], [1e6, "µs", 1e3], [1e9, "ms", 1e6], [60e9, "s", 1e9], [3600e9, "min", 60e9], [Infinity, "h", 3600e9]];
const timeText = (ns, digits = 3) => {
  const n = Math.abs(ns), [, unit, scale] = TIMES.find(([below]) => n < below);
  return `${ns < 0 ? "−" : ""}${parseFloat((n / scale).toPrecision(digits))} ${unit}`;
};
const percentText = (part, whole) => (whole ? `${((part / whole) * 100).toFixed(1)} %` : "–");
// Control characters have no picture of their own.
const shown = (text) => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "�");
const shownLines = (text) => String(text).split(/([\n\t])/).map((part, i) => (i % 2 ? part : shown(part))).join("");
const clipped = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

// el("p", {class: "quiet"}, "text", node, …)
const el = (name, attributes = {}, ...inside) => {
  const e = document.createElement(name);
  for (const [key, v] of Object.entries(attributes)) {
    if (key.startsWith("on")) e.addEventListener(key.slice(2), v);
    else if (v === true) e.setAttribute(key, "");
    else if (v !== false && v !== null && v !== undefined) e.setAttribute(key, v);
  }
  const words = name === "pre" ? shownLines : shown;
  e.append(...inside.map((v) => (typeof v === "string" ? words(v) : v)));
  return e;
};
let idCount = 0;
const newId = (name) => `${name}-${++idCount}`;

// A select or a row of buttons of which one is pressed.
const choice = (label, options, value, change) => {
  const id = newId("choice");
  const select = el("select", { id, onchange: () => change(select.value) },
    ...options.map(([v, text]) => el("option", { value: v, selected: String(v) === String(value) }, text)));
  return { element: el("label", { class: "field", for: id }, el("span", {}, label), select), select };
};
const searchField = (label, change) => {
  const id = newId("search"), input = el("input", { id, type: "search", placeholder: "search", autocomplete: "off",
    spellcheck: "false", oninput: () => change(input.value) });
  input.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { input.value = ""; change(""); input.blur(); e.stopPropagation(); }
  });
  return { element: el("label", { class: "field", for: id }, el("span", {}, label), input), input };
};

// --- colours: of the style, so that light and dark are one place ---

let colours = {};
const readColours = () => {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue("--" + name).trim();
  colours = { bands: [] };
  for (const name of ["back", "card", "text", "quiet", "line", "accent", "users", "library", "words", "found", "bad", "warn",
    "good", "free", "rest", "more", "less", "compute", "comm", "copy", "idle", "on-colour", "hole", "full"]) colours[name] = get(name);
  for (let i = 1; i <= 12; i++) colours.bands.push(get("band" + i));
};
const rgb = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const MONO = "11.5px ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace";

// --- canvases ---

const pictures = [];
// A canvas as wide as its place, sharp on every screen. draw(context, width, height).
const canvas = (label, height, draw) => {
  const c = el("canvas", { tabindex: "0", role: "img", "aria-label": label });
  const box = el("div", { class: "picture" }, c);
  const picture = { canvas: c, box, height, width: 0, dirty: true };
  picture.paint = () => {
    const width = Math.floor(box.clientWidth);
    if (!width) return;
    const scale = window.devicePixelRatio || 1, h = typeof picture.height === "function" ? picture.height(width) : picture.height;
    if (c.width !== Math.round(width * scale) || c.height !== Math.round(h * scale)) {
      c.width = Math.round(width * scale);
      c.height = Math.round(h * scale);
      c.style.height = h + "px";
    }
    picture.width = width;
    picture.dirty = false;
    const g = c.getContext("2d");
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.clearRect(0, 0, width, h);
    g.font = FONT;
    g.textBaseline = "middle";
    draw(g, width, h);
  };
  picture.refresh = () => {
    if (picture.dirty) return;
    picture.dirty = true;
    requestAnimationFrame(() => picture.paint());
  };
  pictures.push(picture);
  return picture;
};
const paintAll = () => { for (const p of pictures) p.paint(); };
const place = (picture, event) => {
  const r = picture.canvas.getBoundingClientRect();
  return [event.clientX - r.left, event.clientY - r.top];
};

// As much of a text as fits; widths of letters are guessed first, since measuring costs.
const fitText = (g, text, width) => {
  const clean = shown(text);
  if (width < 16) return "";
  if (clean.length * 4 <= width && g.measureText(clean).width <= width) return clean;
  let n = Math.min(clean.length, Math.floor(width / 3.5));
  while (n > 1 && g.measureText(clean.slice(0, n) + "…").width > width) n = Math.max(1, Math.floor(n * 0.92) - 1);
  return n > 1 ? clean.slice(0, n) + "…" : "";
};

// Words on top of a picture, on a ground of their own, wholly between two sides. x: their middle.
const plate = (g, text, x, y, left, right, colour) => {
  const half = g.measureText(text).width / 2 + 4, at = Math.max(left + half, Math.min(right - half, x));
  g.fillStyle = colours.card;
  g.globalAlpha = 0.88;
  g.fillRect(at - half, y - 9, 2 * half, 18);
  g.globalAlpha = 1;
  g.fillStyle = colour;
  g.textAlign = "center";
  g.fillText(text, at, y);
};
// Marks at places of an axis, those nearer than `apart` as one: [place of the first, the marks].
const gathered = (marks, xOf, apart) => {
  const out = [];
  for (const m of marks) {
    const x = xOf(m), last = out.at(-1);
    if (last && x - last[0] < apart) last[1].push(m);
    else out.push([x, [m]]);
  }
  return out;
};
const refusalWords = (list) => (list.length > 1 ? `${list.length} refusals, ` : "");

// The next of 1, 2, 5, 10, 20, …
function roundStride(least) {
  const unit = Math.pow(10, Math.max(0, Math.floor(Math.log10(Math.max(1, least)))));
  return unit * [1, 2, 5, 10].find((f) => unit * f >= least);
}

// Round steps for an axis: of bytes in powers of two, of times in 1, 2, 5.
const byteTicks = (most, count) => {
  let step = 1;
  while (most / step > count) step *= 2;
  const out = [];
  for (let v = 0; v <= most * 1.0001; v += step) out.push(v);
  return out;
};
const timeTicks = (from, to, count) => {
  const span = Math.max(to - from, 1), unit = to < 600e9 ? 1 : to < 36000e9 ? 60e9 : 3600e9;
  let step = unit * Math.pow(10, Math.max(unit > 1 ? 0 : -Infinity, Math.floor(Math.log10(span / unit / count))));
  for (const f of [1, 2, 5, 10]) if (span / (step * f) <= count || f === 10) { step *= f; break; }
  const out = [];
  for (let v = Math.ceil(from / step) * step; v <= to; v += step) out.push(v);
  return out;
};
// All ticks of an axis in one unit.
const timeTick = (v, span) => {
  const [, unit, scale] = TIMES.find(([below], i) => Math.abs(span) < below * (i > 2 ? 10 : 2)) || TIMES[5];
  return `${parseFloat((v / scale).toPrecision(6))} ${unit}`;
};

// --- the tip ---

const tip = {
  get element() { return document.getElementById("tip"); },
  show(event, ...lines) {
    const e = this.element;
    e.replaceChildren(...lines.filter((l) => l !== null && l !== undefined).map((l) => (l instanceof Node ? l : el("p", {}, l))));
    e.hidden = false;
    const box = e.getBoundingClientRect(), pad = 14;
    const x = Math.min(event.clientX + pad, innerWidth - box.width - 6);
    const y = event.clientY + pad + box.height > innerHeight ? event.clientY - box.height - pad : event.clientY + pad;
    e.style.left = Math.max(6, x) + "px";
    e.style.top = Math.max(6, y) + "px";
  },
  hide() { this.element.hidden = true; },
};
const swatch = (colour) => {
  const s = el("i", { class: "swatch" });
  s.style.background = colour;
  return s;
};
const stackLines = (tree, node, most = 24) => {
  const lines = tree.stack(node), list = el("ol", { class: "stack" });
  for (const line of lines.slice(0, most)) list.append(el("li", {}, clipped(shown(line), 400)));
  if (lines.length > most) list.append(el("li", { class: "quiet" }, `and ${lines.length - most} more frames`));
  return list;
};

// --- sections ---

const section = (id, title, ...inside) => {
  const s = el("section", { id, "aria-labelledby": "h-" + id, class: "card" }, el("h2", { id: "h-" + id }, title), ...inside);
  document.getElementById("main").append(s);
  document.getElementById("nav").append(el("a", { href: "#" + id }, title));
  return s;
};
