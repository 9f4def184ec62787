// What the page carries (report/pack.h), and what can be asked about it. Nothing here draws.

const unpack = async () => {
  const text = document.getElementById("data").textContent;
  let packed;
  if (Uint8Array.fromBase64) {
    packed = Uint8Array.fromBase64(text);
  } else {
    const letters = atob(text);
    packed = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  }
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

class Pack {
  constructor(bytes) {
    const length = bytes[0] + bytes[1] * 256 + bytes[2] * 65536 + bytes[3] * 16777216;
    this.model = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
    this.bytes = bytes.subarray(4 + length);
    this.texts = this.model.texts;
    this.model.texts = null;
  }

  has(name) { return name in this.model.arrays; }

  // Numbers; signed ones are folded, see pack.h.
  array(name, signed = false) {
    const [count, offset] = this.model.arrays[name] || [0, 0];
    const out = new Float64Array(count), bytes = this.bytes;
    let at = offset;
    for (let i = 0; i < count; i++) {
      let v = bytes[at++];
      if (v >= 128) {
        v &= 127;
        for (let scale = 128, b = 128; b >= 128; scale *= 128) {
          b = bytes[at++];
          v += (b & 127) * scale;
        }
      }
      out[i] = signed ? (v % 2 ? -(v + 1) / 2 : v / 2) : v;
    }
    return out;
  }
}

const sumUp = (list) => {
  for (let i = 1; i < list.length; i++) list[i] += list[i - 1];
  return list;
};

// Call stacks of all pictures: nodes below node 0, each with a frame.
const KIND_LIBRARY = 0, KIND_USERS = 1, KIND_WORDS = 2;
class Tree {
  constructor(pack) {
    const back = pack.array("node.parent");
    this.texts = pack.texts;
    this.parent = Int32Array.from(back, (v, i) => (i ? i - v : -1));
    this.frame = Int32Array.from(pack.array("node.frame"));
    this.name = [...pack.array("frame.name")];
    this.file = [...pack.array("frame.file")];
    this.line = [...pack.array("frame.line")];
    this.kind = [...pack.array("frame.kind")];
    this.labels = [];
    this.extra = [];
  }

  get count() { return this.parent.length; }

  // A node of words below the root, made by this page.
  add(words) {
    const parent = new Int32Array(this.count + 1), frame = new Int32Array(this.count + 1);
    parent.set(this.parent);
    frame.set(this.frame);
    const node = this.count, at = this.kind.length;
    this.name.push(0);
    this.file.push(0);
    this.line.push(0);
    this.kind.push(KIND_WORDS);
    this.labels[at] = words;
    frame[node] = at;
    this.parent = parent;
    this.frame = frame;
    this.children = null;
    return node;
  }

  label(node) {
    if (!node) return "all";
    const f = this.frame[node];
    if (this.labels[f] === undefined) {
      const name = this.texts[this.name[f]], file = this.texts[this.file[f]];
      const short = file.split("/").slice(-2).join("/"), line = this.line[f];
      this.labels[f] = file ? `${name} (${short}${line ? ":" + line : ""})` : name;
    }
    return this.labels[f];
  }

  kindOf(node) { return node ? this.kind[this.frame[node]] : KIND_WORDS; }

  // Innermost first.
  stack(node) {
    const out = [];
    for (let n = node; n > 0; n = this.parent[n]) out.push(this.label(n));
    return out;
  }

  // Children of a node: list[start[n]] to list[start[n + 1]].
  index() {
    if (this.children) return this.children;
    const n = this.count, start = new Int32Array(n + 2), list = new Int32Array(n);
    for (let i = 1; i < n; i++) start[this.parent[i] + 2]++;
    for (let i = 2; i < n + 2; i++) start[i] += start[i - 1];
    for (let i = 1; i < n; i++) list[start[this.parent[i] + 1]++] = i;
    return (this.children = { start, list });
  }

  // What each node has with all below it. A parent has a smaller number than its children.
  total(own) {
    const out = Float64Array.from(own);
    for (let i = out.length - 1; i > 0; i--) out[this.parent[i]] += out[i];
    return out;
  }
}

// The memory of one input: sites, each with what came and went in buckets of time.
class Memory {
  constructor(pack, model, tree) {
    const get = (name, signed) => pack.array(model.prefix + name, signed);
    this.model = model;
    this.pack = pack;
    this.texts = pack.texts;
    this.tree = tree;
    this.bucketNs = model.bucket_ns;
    this.buckets = model.buckets;
    this.lengthNs = Math.max(model.length_ns, 1);
    this.pools = [];
    for (const p of model.pools) this.pools[p.number] = p;
    this.site = {};
    for (const name of ["scope", "pool", "node", "owner", "module", "line", "via", "type", "flags", "stands_for"])
      this.site[name] = get("site." + name);
    this.count = this.site.scope.length;
    this.readEntries(get);
    this.readLevels(get);
    this.moments = {};
    for (const name of ["peak", "end"]) {
      const m = {};
      for (const part of ["scope", "site", "pool", "bytes", "blocks"]) m[part] = get(name + "." + part);
      this.moments[name] = m;
    }
    this.steps = { pid: get("step.pid"), number: get("step.number"), start: get("step.start"), length: get("step.length") };
    this.free = this.pools.map((p) => tree.add(`free inside the pool ${p.name}`));
    this.bandCache = new Map();
    this.freeCache = new Map(); // by scope
    this.startNs = this.findStart();
  }

  // Where the pictures begin: a while before anything is held, if that is long.
  findStart() {
    const level = this.level(-1, "most");
    let b = 0;
    while (b < this.buckets && !level[b]) b++;
    const ns = b < this.buckets ? b * this.bucketNs : 0, lead = (this.lengthNs - ns) * 0.03;
    return ns > this.lengthNs * 0.1 ? ns - lead : 0;
  }

  // Absolute buckets, and running sums: what is alive at the end of a bucket, what was allocated by then.
  readEntries(get) {
    const n = get("site.entries"), bucket = get("entry.bucket"), plus = get("entry.plus"), minus = get("entry.minus");
    const more = get("entry.more"), less = get("entry.less");
    this.first = new Uint32Array(this.count + 1);
    for (let s = 0; s < this.count; s++) {
      let at = 0, bytes = 0, blocks = 0, allocated = 0, allocations = 0;
      const end = this.first[s] + n[s];
      for (let i = this.first[s]; i < end; i++) {
        at += bucket[i];
        bucket[i] = at;
        allocated += plus[i];
        allocations += more[i];
        bytes += plus[i] - minus[i];
        blocks += more[i] - less[i];
        plus[i] = allocated;
        minus[i] = bytes;
        more[i] = allocations;
        less[i] = blocks;
      }
      this.first[s + 1] = end;
    }
    this.entry = { bucket, allocated: plus, bytes: minus, allocations: more, blocks: less };
  }

  readLevels(get) {
    const last = get("level.last", true), above = get("level.above");
    this.levels = this.model.scopes.map((_, i) => {
      const l = sumUp(last.slice(i * this.buckets, (i + 1) * this.buckets));
      const most = new Float64Array(this.buckets);
      for (let b = 0; b < this.buckets; b++)
        most[b] = Math.max(l[b], b ? l[b - 1] : 0) + above[i * this.buckets + b];
      return { last: l, most };
    });
  }

  bucketOf(ns) { return Math.max(0, Math.min(this.buckets - 1, Math.floor(ns / this.bucketNs))); }

  // The newest entry of a site up to a bucket, -1: none.
  entryAt(site, bucket) {
    const list = this.entry.bucket;
    let low = this.first[site], high = this.first[site + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle] <= bucket) low = middle + 1;
      else high = middle;
    }
    return low > this.first[site] ? low - 1 : -1;
  }

  at(what, site, bucket) {
    const i = bucket < 0 ? -1 : this.entryAt(site, bucket);
    return i < 0 ? 0 : this.entry[what][i];
  }

  // Created memory of the driver is where mapped pools lie: it counts among what they have free.
  counts(site) { return !(this.site.flags[site] & 1) || !this.model.scopes[this.site.scope[site]].has_pool; }

  // Steps of the process that is shown; of several, of the first that has any.
  stepsOf(scope) {
    const s = this.steps, pid = scope >= 0 ? this.model.scopes[scope].pid : s.pid[0], out = [];
    for (let i = 0; i < s.number.length; i++)
      if (s.pid[i] === pid) out.push({ number: s.number[i], start: s.start[i], end: s.start[i] + s.length[i] });
    return out;
  }

  scopesOf(scope) { return scope < 0 ? this.model.scopes.map((_, i) => i) : [scope]; }

  level(scope, what = "last") {
    if (scope >= 0) return this.levels[scope][what];
    const key = "level " + what;
    if (!this.bandCache.has(key)) {
      const out = new Float64Array(this.buckets);
      for (const l of this.levels) for (let b = 0; b < out.length; b++) out[b] += l[what][b];
      this.bandCache.set(key, out);
    }
    return this.bandCache.get(key);
  }

  // The bucket of a range in which most is held; of equal ones that in which most is used.
  highest(scope, from, to) {
    const key = `${scope} ${from} ${to}`;
    if (this.lastHighest?.key === key) return this.lastHighest.best;
    const most = this.level(scope, "most"), free = this.freeInPools(scope);
    let best = from;
    for (let b = from; b <= to; b++)
      if (most[b] > most[best] || (free && most[b] === most[best] && free[b] < free[best])) best = b;
    this.lastHighest = { key, best };
    return best;
  }

  // It is the same whatever bands are made by: those that are there already say it.
  freeInPools(scope) {
    if (!this.freeCache.has(scope)) this.bands("owner", scope);
    return this.freeCache.get(scope);
  }

  // What a picture of call stacks shows: a value for each site, and what lies free in pools.
  // moment: {kind: "peak" | "end" | "at" | "allocated" | "growth", from, to (buckets)}
  values(moment, count, scope) {
    const sites = new Float64Array(this.count), free = new Float64Array(this.pools.length);
    const wanted = new Set(this.scopesOf(scope));
    if (moment.kind === "peak" || moment.kind === "end") {
      const m = this.moments[moment.kind], from = count ? m.blocks : m.bytes;
      for (let i = 0; i < m.site.length; i++) {
        if (!wanted.has(m.scope[i])) continue;
        if (m.site[i]) sites[m.site[i] - 1] += from[i];
        else free[m.pool[i]] += from[i];
      }
      return { sites, free };
    }
    const what = moment.kind === "allocated" ? (count ? "allocations" : "allocated") : count ? "blocks" : "bytes";
    for (let s = 0; s < this.count; s++) {
      if (!wanted.has(this.site.scope[s]) || (moment.kind === "at" && !this.counts(s))) continue;
      const now = this.at(what, s, moment.to);
      sites[s] = moment.kind === "at" ? now : now - this.at(what, s, moment.from - 1);
    }
    if (moment.kind === "at" && !count) this.addFree(moment.to, wanted, sites, free);
    return { sites, free };
  }

  // What the driver has handed out and nobody uses is free inside the pools of the device.
  addFree(bucket, wanted, sites, free) {
    for (const scope of wanted) {
      if (!this.model.scopes[scope].has_pool) continue;
      let rest = this.levels[scope].last[bucket], pool = -1;
      for (let s = 0; s < this.count; s++) if (this.site.scope[s] === scope) rest -= sites[s];
      for (const p of this.pools) if (p && p.scope === scope && !p.driver && pool < 0) pool = p.number;
      if (pool >= 0 && rest > 0) free[pool] += rest;
    }
  }

  nodes(values) {
    const own = new Float64Array(this.tree.count);
    for (let s = 0; s < this.count; s++) own[this.site.node[s]] += values.sites[s];
    values.free.forEach((v, pool) => { if (v) own[this.free[pool]] += v; });
    return own;
  }

  // --- bands: who holds how much, over time ---

  // The user's own line, and what of a framework it called.
  where(site) {
    const line = this.texts[this.site.line[site]], via = this.texts[this.site.via[site]];
    return (via ? `${line} via ${via}` : line) || this.tree.label(this.site.node[site]);
  }

  group(by, site) {
    const text = (name) => this.texts[this.site[name][site]];
    const owner = () => text("owner") || "unknown";
    switch (by) {
    case "module":
      return text("module").replace(/(^|\.)\d+(?=\.|$)/g, "$1*") || "(no module)";
    case "line": return text("line") || "(no call stack)";
    case "type": return this.model.types[this.site.type[site]];
    case "pool": return this.pools[this.site.pool[site]].words;
    default: return owner();
    }
  }

  bands(by, scope, most = 11) {
    const key = `${by} ${scope}`;
    if (this.bandCache.has(key)) return this.bandCache.get(key);
    const groups = new Map(), wanted = new Set(this.scopesOf(scope));
    for (let s = 0; s < this.count; s++) {
      if (!wanted.has(this.site.scope[s]) || !this.counts(s)) continue;
      const name = this.group(by, s);
      if (!groups.has(name)) groups.set(name, { name, sites: [], weight: 0 });
      const g = groups.get(name);
      g.sites.push(s);
      for (let i = this.first[s]; i < this.first[s + 1]; i++) {
        const end = i + 1 < this.first[s + 1] ? this.entry.bucket[i + 1] : this.buckets;
        g.weight += this.entry.bytes[i] * (end - this.entry.bucket[i]);
      }
    }
    const list = [...groups.values()].sort((a, b) => b.weight - a.weight || (a.name < b.name ? -1 : 1));
    const kept = list.slice(0, list.length > most ? most - 1 : most);
    if (list.length > kept.length) {
      const rest = list.slice(kept.length);
      kept.push({ name: `${rest.length} others`, rest: true, sites: rest.flatMap((g) => g.sites) });
    }
    const level = this.level(scope), used = new Float64Array(this.buckets);
    for (const g of kept) {
      g.series = new Float64Array(this.buckets);
      for (const s of g.sites)
        for (let i = this.first[s]; i < this.first[s + 1]; i++)
          g.series[this.entry.bucket[i]] += this.entry.bytes[i] - (i > this.first[s] ? this.entry.bytes[i - 1] : 0);
      sumUp(g.series);
      for (let b = 0; b < used.length; b++) used[b] += g.series[b];
    }
    if (this.scopesOf(scope).some((s) => this.model.scopes[s].has_pool)) {
      const series = Float64Array.from(level, (v, b) => Math.max(0, v - used[b]));
      kept.push({ name: "free inside the pools", free: true, sites: [], series });
    }
    this.addPeak(kept, by, scope);
    this.bandCache.set(key, kept);
    this.freeCache.set(scope, kept.find((b) => b.free)?.series);
    return kept;
  }

  // In the bucket of its peak a device is shown as it was at that very moment.
  addPeak(bands, by, scope) {
    if (scope < 0) return;
    const bucket = this.bucketOf(this.model.scopes[scope].peak_ns);
    const v = this.values({ kind: "peak" }, false, scope);
    for (const g of bands) {
      g.series[bucket] = g.free ? v.free.reduce((a, b) => a + b, 0) : 0;
      for (const s of g.sites) g.series[bucket] += v.sites[s];
    }
  }
}

// The sums of a JSON answer's lists, by the path of an owner: PTA over PTA@weight.
const ownerTree = (memory, values) => {
  const root = { name: "all", path: "", bytes: 0, children: new Map(), depth: 0 };
  const add = (parts, v) => {
    let node = root;
    node.bytes += v;
    parts.forEach((part, i) => {
      if (!node.children.has(part)) {
        const path = parts.slice(0, i + 1).join("@");
        node.children.set(part, { name: part, path, bytes: 0, children: new Map(), depth: i + 1 });
      }
      node = node.children.get(part);
      node.bytes += v;
    });
  };
  for (let s = 0; s < memory.count; s++)
    if (values.sites[s]) add((memory.texts[memory.site.owner[s]] || "unknown").split("@"), values.sites[s]);
  values.free.forEach((v, pool) => { if (v) add([memory.pools[pool].name, "free inside the pool"], v); });
  return root;
};
