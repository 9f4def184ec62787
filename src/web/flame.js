// A flame graph that moves: a click on a box makes it as wide as the picture, one on the topmost box
// shows everything again; "/" or a click on "search" marks boxes by a part of their name. Names come
// from the job: they are only ever text.
(() => {
  "use strict";
  const svg = document.documentElement;
  const line = document.getElementById("flame-line");
  const normal = line.textContent;
  const PAD = 8, WIDTH = 1200, LETTER = 6.6;
  const boxes = [...document.querySelectorAll("#flame-boxes > g")].map((g) => {
    const rect = g.querySelector("rect"), title = g.querySelector("title").textContent;
    return { g, rect, title, text: g.querySelector("text"), name: title.slice(0, title.lastIndexOf(": ")),
             x: +rect.getAttribute("x"), y: +rect.getAttribute("y"), w: +rect.getAttribute("width") };
  });

  const fit = (name, width) => {
    const room = width > 3 * LETTER ? Math.floor((width - 6) / LETTER) : 0;
    const letters = [...name];
    return letters.length <= room ? name : room ? letters.slice(0, room - 1).join("") + "…" : "";
  };

  const zoom = (to) => {
    const scale = (WIDTH - 2 * PAD) / to.w;
    for (const b of boxes) {
      const above = b.y < to.y && b.x <= to.x + 0.01 && b.x + b.w >= to.x + to.w - 0.01;
      const inside = b.y >= to.y && b.x >= to.x - 0.01 && b.x + b.w <= to.x + to.w + 0.01;
      const x = above ? PAD : PAD + (b.x - to.x) * scale, w = above ? WIDTH - 2 * PAD : b.w * scale;
      b.g.classList.toggle("hidden", !above && !inside);
      b.rect.setAttribute("x", x);
      b.rect.setAttribute("width", w);
      b.rect.style.opacity = above ? 0.5 : 1;
      b.text.setAttribute("x", x + 3);
      b.text.textContent = fit(b.name, w);
    }
  };

  const search = () => {
    const wanted = prompt("Mark boxes whose name contains:", "");
    if (wanted === null) return;
    const low = wanted.toLowerCase();
    let found = 0;
    for (const b of boxes) {
      const hit = low !== "" && b.name.toLowerCase().includes(low);
      b.g.classList.toggle("found", hit);
      found += hit;
    }
    line.textContent = low ? `${found} boxes contain "${wanted}".` : normal;
  };

  for (const b of boxes) {
    b.g.style.cursor = "pointer";
    b.g.addEventListener("click", () => zoom(b));
    b.g.addEventListener("mouseover", () => { line.textContent = b.title; });
    b.g.addEventListener("mouseout", () => { line.textContent = normal; });
  }
  const button = document.createElementNS("http://www.w3.org/2000/svg", "text");
  button.id = "flame-search";
  button.setAttribute("x", WIDTH - 60);
  button.setAttribute("y", 20);
  button.textContent = "search";
  button.addEventListener("click", search);
  svg.append(button);
  addEventListener("keydown", (e) => {
    if (e.key === "/") { e.preventDefault(); search(); }
    if (e.key === "Escape" && boxes.length) zoom(boxes[0]);
  });
})();
