// Flame graphs of Python's time and of profiles, one section for each.

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
