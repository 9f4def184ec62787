#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Prints one table: `sonde report` beside `memray flamegraph --temporal` and PyTorch's memory_viz, on
equally many events.

usage: report_rate.py [--build DIR] [--python PYTHON] [--events N,N…] [--no-peer] [--memory-viz FILE]
                      [--dumps DIR [--write]]

All get the same story: blocks of many sizes from 200 call stacks of eight Python frames are allocated and
freed in turn. Ours is a csv dump of it; memray records a program that does it with bytearrays. Default:
10^5 and 10^6 events; 10^7 and 10^8 are for machines with time and disk (27.7 GB): --dumps DIR keeps the
dumps there and takes those that are there, --write only writes them. memray is installed into
DIR/report_rate by pip with PYTHON; if it cannot be had, that is said.

memray's page has its libraries in it (--no-web), so that it draws without a network.

memory_viz gets the very blocks of our dump, as `sonde mem export --format=torch` writes them. Its script,
torch/utils/viz/MemoryViz.js of PyTorch's sources, is in no wheel: FILE names it. d3, which it takes from
another host, comes from npm, and all of it is served on the loopback. Of a longer trace it draws its 15,000
largest entries, unless one asks for more. `make` is of the snapshot, which is what its page loads.

  make       seconds of the processor to write the page from what was recorded
  events/s   of that
  MB         of the page
  ready      ms from the start of loading until the page has drawn its pictures (Chromium)
  drag       ms from a move or the release of a pointer that selects a range of time until the page has
             answered it: median and longest of five drags. memray's page waits half a second of it
  verdict    of ours: "ok", or what is above its budget: 20 MB, 2000 ms ready, 100 ms the longest
             answer to a drag; times of their pages in bytes, seconds of making, ms until ready
"""

import argparse
import http.server
import pathlib
import random
import re
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests/e2e"))
LINE = "%-12s %10s %8s %9s %8s %7s %9s  %s"
STACKS, DEPTH, LIVE = 200, 8, 5000
LIMIT_S = 900
BUDGET = {"mb": 20, "ready": 2000, "drag": 100}

COLUMNS = (
    "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,"
    "Call Stack(Python),Call Stack(C)\n"
)

PEER = """
import random, sys
random.seed(1)
n, live = int(sys.argv[1]) // 2, []
code = "def f%d(s, k):\\n    return f%d(s, k) if k != %d else bytearray(s)\\n"
names = {}
for i in range(STACKS):
    exec("".join(f"def f{i}_{d}(s):\\n    return f{i}_{d+1}(s)\\n" for d in range(DEPTH)) +
         f"def f{i}_{DEPTH}(s):\\n    return bytearray(s)\\n", names)
tops = [names[f"f{i}_0"] for i in range(STACKS)]
for i in range(n):
    live.append(tops[random.randrange(STACKS)](random.randrange(600, 66000)))
    if len(live) > LIVE:
        live[random.randrange(LIVE)] = live[-1]
        live.pop()
"""


def write_dump(path, events):
    """Half of them allocations; blocks are as far apart as they are large."""
    random.seed(1)
    stacks = [
        '"' + "\n".join(f"/srv/job/part{i % 9}.py({40 + d}): f{i}_{d}" for d in range(DEPTH)) + '"'
        for i in range(STACKS)
    ]
    live, free, used, ns = [], [], 0, 1_700_000_000_000_000_000
    with open(path, "w") as f:
        f.write(COLUMNS)
        for i in range(events // 2):
            if len(live) >= LIVE:
                k = random.randrange(len(live))
                number, size, slot = live[k]
                live[k] = live[-1]
                live.pop()
                free.append(slot)
                used -= size
                ns += 1500
                f.write(f'{2 * i},FREE,PTA,N/A,{ns},7,7,0,{slot << 17},"{{allocation_id:{number},addr:{slot << 17},'
                        f'size:{size},owner:PTA,total:{LIVE << 17},used:{used}}}",N/A,N/A\n')  # fmt: skip
            size, slot = random.randrange(600, 66000), free.pop() if free else i + 1
            live.append((i + 1, size, slot))
            used += size
            ns += 1500
            f.write(f'{2 * i + 1},MALLOC,PTA,N/A,{ns},7,7,0,{slot << 17},"{{allocation_id:{i + 1},addr:{slot << 17},'
                    f'size:{size},owner:PTA,total:{LIVE << 17},used:{used}}}",{stacks[random.randrange(STACKS)]},N/A\n')  # fmt: skip


def timed(*words, limit=None):
    """Seconds of the processor: others may use it, too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        r = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{pathlib.Path(words[0]).name} took longer than {limit} s") from None
    if r.returncode:
        raise RuntimeError(f"rc {r.returncode} {(r.stderr or r.stdout).strip().splitlines()[-1:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# each answer: from the pointer's event until the frame after it has been made
WATCH = """(() => {
  window.answers = [];
  const end = (e) => requestAnimationFrame(() => setTimeout(() => answers.push(performance.now() - e.timeStamp)));
  for (const type of ["pointermove", "pointerup"])
    addEventListener(type, (e) => { if (type === "pointerup" || e.buttons) end(e); }, true);
})()"""
# this page draws half a second after the release, and says so on the console
WATCH_MEMRAY = """(() => {
  window.answers = [];
  let released = 0;
  const log = console.log;
  addEventListener("pointerup", (e) => { released = e.timeStamp; }, true);
  addEventListener("mouseup", (e) => { released = e.timeStamp; }, true);
  console.log = (...words) => {
    log(...words);
    if (released && String(words[0]).startsWith("hiding loading"))
      requestAnimationFrame(() => setTimeout(() => { answers.push(performance.now() - released); released = 0; }));
  };
})()"""


def drag_often(b, place, watch, moves):
    """ms of all answers to five drags across the element that the expression `place` finds."""
    b.js(f"{place}.scrollIntoView({{block: 'center'}})")
    x, y, w, h = b.js(f"(() => {{ const r = {place}.getBoundingClientRect(); return [r.x, r.y, r.width, r.height] }})()")
    b.js(watch)
    for i in range(5):
        seen = b.js("answers.length")
        at = lambda f: {"x": x + w * f, "y": y + h / 2, "button": "left", "buttons": 1}
        b.ask("Input.dispatchMouseEvent", type="mousePressed", clickCount=1, **at(0.1 + 0.02 * i))
        for k in range(1, moves + 1):
            b.ask("Input.dispatchMouseEvent", type="mouseMoved", **at(0.1 + 0.02 * i + k * 0.7 / moves))
        b.ask("Input.dispatchMouseEvent", type="mouseReleased", clickCount=1, **at(0.8 + 0.02 * i))
        b.until(f"answers.length > {seen}", 60)
        time.sleep(1)  # the rest of them; a click at once would be a double click
    return b.js("answers")


def look(url, ready, place, watch=WATCH):
    """ms until the expression `ready` is true after loading began, and of drags across `place`; None: too long."""
    from browser import Browser

    with tempfile.TemporaryDirectory(prefix="sonde_bench_") as tmp:
        with Browser(pathlib.Path(tmp)) as b:
            begin = time.monotonic()
            try:
                b.ask("Page.navigate", url=url)
                b.until(f"!!({ready})", 120)
            except Exception:
                return None, None
            took = (time.monotonic() - begin) * 1000
            try:
                return took, drag_often(b, place, watch, 1 if watch == WATCH_MEMRAY else 8)
            except Exception:
                return took, None


def drag_words(times):
    return f"{statistics.median(times):.0f} {max(times):.0f}" if times else "-"


def dump_of(events, folder):
    """The dump of so many events in `folder`, written unless it is there."""
    dump = folder / f"memscope_dump_{events}.csv"
    if not dump.exists():
        unfinished = dump.with_suffix(".part")
        write_dump(unfinished, events)
        unfinished.rename(dump)
    return dump


def ours(build, tmp, dump):
    page = tmp / "ours.html"
    seconds = timed(build / "bin/sonde", "report", "-o", page, dump)
    return seconds, page, *look(page.as_uri(), "window.sondeReport", "document.querySelector('#memory canvas')")


def peer(build, python, tmp, events):
    place = build / "report_rate"
    if not (place / "memray").is_dir():
        timed(python, "-m", "pip", "install", "-q", "--target", place, "memray")
    program = tmp / "job.py"
    text = PEER.replace("STACKS", str(STACKS)).replace("DEPTH", str(DEPTH)).replace("LIVE", str(LIVE))
    program.write_text(text)
    memray = [python, "-c", f"import sys; sys.path.insert(0, {str(place)!r}); from memray.__main__ import main; sys.exit(main())"]  # fmt: skip
    data, page = tmp / "memray.bin", tmp / "memray.html"
    timed(*memray, "run", "-q", "-f", "-o", data, program, events, limit=LIMIT_S)
    seconds = timed(*memray, "flamegraph", "--temporal", "--no-web", "-f", "-o", page, data, limit=LIMIT_S)
    data.unlink()
    drawn = "document.querySelector('#chart svg rect') && document.querySelector('#plot .nsewdrag')"
    return seconds, page, *look(page.as_uri(), drawn, "document.querySelector('#plot .nsewdrag')", WATCH_MEMRAY)


VIZ_PAGE = """<!DOCTYPE html>
<html><head><script src="d3.js"></script></head><body><script type="module">
import {add_remote_files} from "./MemoryViz.js";
add_remote_files([{name: "snapshot", url: "snapshot.pickle"}]);
</script></body></html>
"""


def d3(build):
    """d3 5 as one script, unpacked from npm's package."""
    place = build / "report_rate"
    script = place / "package/dist/d3.min.js"
    if not script.is_file():
        place.mkdir(parents=True, exist_ok=True)
        timed("npm", "pack", "d3@5", "--silent", "--pack-destination", place)
        with tarfile.open(next(place.glob("d3-5*.tgz"))) as t:
            t.extract("package/dist/d3.min.js", place)
    return script


def memory_viz(build, script, tmp, dump):
    """Seconds of making the snapshot, its bytes, ms until the page has drawn, ms of drags."""
    root = tmp / "viz"
    root.mkdir()
    snapshot = root / "snapshot.pickle"
    seconds = timed(build / "bin/sonde", "mem", "export", "--format=torch", "-o", snapshot, dump, limit=LIMIT_S)
    (root / "index.html").write_text(VIZ_PAGE)
    (root / "d3.js").write_bytes(d3(build).read_bytes())
    # what it imports from elsewhere is all in d3
    text = re.sub(r'import \* as d3 from "http[^"]*";', "const d3 = window.d3;", script.read_text())
    text = re.sub(r'import (\{[^}]*\}) from "http[^"]*";', r"const \1 = window.d3;", text)
    (root / "MemoryViz.js").write_text(text)

    class Files(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=root)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        drawn = "document.querySelectorAll('svg').length > 1 && document.querySelector('svg polygon, svg path')"
        ready, drags = look(f"http://127.0.0.1:{server.server_address[1]}/index.html", drawn, "document.querySelector('svg .overlay')")
        server.shutdown()
    return seconds, snapshot, ready, drags


def row_of(name, events, make, against):
    """The row of a peer's page, and what is said of ours beside it."""
    try:
        seconds, page, ready, drags = make()
    except (RuntimeError, OSError) as e:
        return (name, events, "-", "-", "-", "-", "-", f"left out: {e}"), ""
    size, (our_mb, our_seconds, our_ready) = page.stat().st_size / 1e6, against
    row = (name, events, f"{seconds:.1f}", f"{events / seconds:.0f}", f"{size:.2f}",
           f"{ready:.0f}" if ready else "-", drag_words(drags), "" if ready else "not drawn within 120 s")  # fmt: skip
    beside = f"; {name}: {our_mb / size:.2f} times its bytes, {our_seconds / seconds:.2f} its seconds"
    return row, beside + (f", {our_ready / ready:.2f} its ms until ready" if ready and our_ready else "")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--build", default=REPO / "build", type=pathlib.Path)
    ap.add_argument("--python", default=sys.executable)
    ap.add_argument("--events", default="100000,1000000")
    ap.add_argument("--no-peer", action="store_true")
    ap.add_argument("--memory-viz", type=pathlib.Path, metavar="FILE")
    ap.add_argument("--dumps", type=pathlib.Path, metavar="DIR")
    ap.add_argument("--write", action="store_true")
    args = ap.parse_args()
    print(LINE % ("page", "events", "make s", "events/s", "MB", "ready", "drag", "verdict"))
    bad, build = 0, args.build.resolve()
    for events in map(int, args.events.split(",")):
        with tempfile.TemporaryDirectory(prefix="sonde_report_rate_") as folder:
            tmp = pathlib.Path(folder)
            dump = dump_of(events, args.dumps or tmp)
            if args.write:
                continue
            seconds, page, ready, drag = ours(build, tmp, dump)
            mb = page.stat().st_size / 1e6
            longest = max(drag) if drag else None
            over = [k for k, v in {"mb": mb, "ready": ready, "drag": longest}.items()
                    if v is None or v > BUDGET[k]]  # fmt: skip
            bad += bool(over)
            verdict, rows = "ok" if not over else "above its budget: " + ", ".join(over), []
            makers = {} if args.no_peer else {"memray": lambda: peer(build, args.python, tmp, events)}
            if args.memory_viz:
                makers["memory_viz"] = lambda: memory_viz(build, args.memory_viz, tmp, dump)
            for name, make in makers.items():
                row, beside = row_of(name, events, make, (mb, seconds, ready))
                rows.append(row)
                verdict += beside
            print(LINE % ("sonde report", events, f"{seconds:.1f}", f"{events / seconds:.0f}", f"{mb:.2f}",
                          f"{ready or 0:.0f}", drag_words(drag), verdict), flush=True)  # fmt: skip
            for row in rows:
                print(LINE % row, flush=True)
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
