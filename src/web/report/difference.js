// Two recordings side by side: the first is the base.

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
  const status = el("p", {});
  const update = () => {
    const own = new Float64Array(tree.count), rows = new Map(), sums = [0, 0];
    memories.forEach((m, side) => {
      // of each device its own peak
      const v = m.values({ kind: page.what }, false, -1), nodes = m.nodes(v);
      nodes.forEach((x, n) => { if (x) { own[to[n]] += side ? x : -x; sums[side] += x; } });
      for (let s = 0; s < m.count; s++) {
        if (!v.sites[s]) continue;
        const where = m.where(s).replace(/:\d+\)/g, ")"), owner = m.texts[m.site.owner[s]];
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
    status.textContent = `${page.what === "peak" ? "At their peaks the devices" : "At the end the devices"} held ${bytesText(sums[0])} in the first and ${bytesText(sums[1])} in the second recording: ${signed(bytesText(sums[1] - sums[0]), sums[1] - sums[0])}.`;
    page.sums = sums;
    page.rows = list;
  };
  const what = choice("Memory", [["peak", "at the peaks"], ["end", "left at the end"]], "peak", (v) => { page.what = v; update(); });
  section("difference", "Two recordings", status, el("div", { class: "controls" }, what.element, flame.search.element), flame.element, flameKey(true), table.element);
  update();
  page.table = table;
  return page;
};
