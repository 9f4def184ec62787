#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Prints one table: `sonde report` beside `memray flamegraph --temporal` and PyTorch's memory_viz, on
equally many events.

usage: report_rate.py [--build DIR] [--python PYTHON] [--events N,N…] [--no-peer] [--memory-viz FILE]

Both get the same story: blocks of many sizes from 200 call stacks of eight Python frames are allocated and
freed in turn. Ours is a csv dump of it; memray records a program that does it with bytearrays. Default:
10^5 and 10^6 events; 10^7 and 10^8 are for machines with time and disk. memray is installed into
DIR/report_rate by pip with PYTHON; if it cannot be had, that is said.

memory_viz gets the very blocks of our dump, as `sonde mem export --format=torch` writes them. Its script,
torch/utils/viz/MemoryViz.js of PyTorch's sources, is in no wheel: FILE names it. d3, which it takes from
another host, comes from npm, and both are served on the loopback. Of a longer trace it draws its 15,000
largest entries, unless one asks for more. `make` is left out: its page is the snapshot itself.

  make       seconds of the processor to write the page from what was recorded
  events/s   of that
  MB         of the page
  ready      ms from the start of loading until the page has drawn its pictures (Chromium)
  drag       ms until all pictures have answered a new range of time
  verdict    of ours: "ok", or what is above its budget: 20 MB, 2000 ms ready, 100 ms a drag; times of
             memray's page in bytes and in seconds, of memory_viz's in bytes and until it is ready
"""

import argparse
import base64
import http.server
import pathlib
import random
import re
import resource
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests/e2e"))
LINE = "%-22s %10s %8s %11s %9s %8s %7s  %s"
STACKS, DEPTH, LIVE = 200, 8, 5000
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


def timed(*words):
    """Seconds of the processor: others may use it, too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    r = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError((r.stderr or r.stdout).strip().splitlines()[-1:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def look(url, ready, drag):
    """ms until the expression `ready` is true after loading began, and for `drag`; None: too long."""
    from browser import Browser

    with tempfile.TemporaryDirectory(prefix="sonde_bench_") as tmp:
        with Browser(pathlib.Path(tmp)) as b:
            begin = time.monotonic()
            try:
                b.ask("Page.navigate", url=url)
                b.until(f"!!({ready})", 60)
            except Exception:
                return None, None
            took = (time.monotonic() - begin) * 1000
            return took, b.js(drag) if drag else None


OURS_DRAG = """(() => {
  const p = window.sondeReport, times = [];
  for (let i = 0; i < 7; i++) {
    const begin = performance.now(), all = p.memories[0].lengthNs;
    p.state.setRange(all * (0.1 + 0.05 * i), all * (0.6 + 0.05 * i));
    for (const picture of p.pictures) picture.paint();
    times.push(performance.now() - begin);
  }
  return times.sort((a, b) => a - b)[3];
})()"""


def ours(build, tmp, events, keep):
    dump, page = tmp / f"memscope_dump_{events}.csv", tmp / "ours.html"
    write_dump(dump, events)
    seconds = timed(build / "bin/sonde", "report", "-o", page, dump)
    if not keep:
        dump.unlink()
    return seconds, page, *look(page.as_uri(), "window.sondeReport", OURS_DRAG)


def peer(build, python, tmp, events):
    place = build / "report_rate"
    if not (place / "memray").is_dir():
        timed(python, "-m", "pip", "install", "-q", "--target", place, "memray")
    program = tmp / "job.py"
    text = PEER.replace("STACKS", str(STACKS)).replace("DEPTH", str(DEPTH)).replace("LIVE", str(LIVE))
    program.write_text(text)
    memray = [python, "-c", f"import sys; sys.path.insert(0, {str(place)!r}); from memray.__main__ import main; sys.exit(main())"]  # fmt: skip
    data, page = tmp / "memray.bin", tmp / "memray.html"
    timed(*memray, "run", "-q", "-f", "-o", data, program, events)
    seconds = timed(*memray, "flamegraph", "--temporal", "-f", "-o", page, data)
    data.unlink()
    # it draws with libraries of other hosts, which are not there: its data is ready then, at best
    return seconds, page, look(page.as_uri(), "typeof packed_data !== 'undefined' || document.readyState === 'complete'", "")[0]  # fmt: skip


VIZ_PAGE = """<!DOCTYPE html>
<html><head><script src="d3.js"></script></head><body><script type="module">
import {add_local_files} from "./MemoryViz.js";
add_local_files([{name: "snapshot", base64: "%s"}], "Active Memory Timeline");
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


def memory_viz(build, script, tmp, events):
    """MB of the page and ms until it has drawn."""
    root, snapshot = tmp / "viz", tmp / "snapshot.pickle"
    root.mkdir()
    timed(build / "bin/sonde", "mem", "export", "--format=torch", "-o", snapshot, tmp / f"memscope_dump_{events}.csv")
    data = snapshot.read_bytes()
    page = root / "index.html"
    page.write_text(VIZ_PAGE % base64.b64encode(data + bytes(-len(data) % 3)).decode())
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
        ready, _ = look(f"http://127.0.0.1:{server.server_address[1]}/index.html", drawn, "")
        server.shutdown()
    return page.stat().st_size / 1e6, ready


def viz_row(args, tmp, events, mb, ready):
    """Its row, and what is said of ours beside it."""
    row = ["memory_viz", events, "-", "-", "-", "-", "-"]
    if not args.memory_viz:
        return (*row, "left out: --memory-viz says where PyTorch's MemoryViz.js is"), ""
    try:
        size, theirs = memory_viz(args.build.resolve(), args.memory_viz, tmp, events)
    except (RuntimeError, OSError) as e:
        return (*row, f"left out: {e}"), ""
    row[4:6] = f"{size:.2f}", "-" if theirs is None else f"{theirs:.0f}"
    beside = f"; memory_viz: {mb / size:.2f} times its bytes"
    if theirs and ready:
        beside += f", {ready / theirs:.2f} times its ms until ready"
    return (*row, "" if theirs else "not drawn within 60 s"), beside


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--build", default=REPO / "build", type=pathlib.Path)
    ap.add_argument("--python", default=sys.executable)
    ap.add_argument("--events", default="100000,1000000")
    ap.add_argument("--no-peer", action="store_true")
    ap.add_argument("--memory-viz", type=pathlib.Path, metavar="FILE")
    args = ap.parse_args()
    print(LINE % ("page", "events", "make s", "events/s", "MB", "ready", "drag", "verdict"))
    bad = 0
    for events in map(int, args.events.split(",")):
        with tempfile.TemporaryDirectory(prefix="sonde_report_rate_") as folder:
            tmp = pathlib.Path(folder)
            seconds, page, ready, drag = ours(args.build.resolve(), tmp, events, args.memory_viz)
            mb = page.stat().st_size / 1e6
            over = [k for k, v in {"mb": mb, "ready": ready, "drag": drag}.items()
                    if v is None or v > BUDGET[k]]  # fmt: skip
            bad += bool(over)
            verdict, rows = "ok" if not over else "above its budget: " + ", ".join(over), []
            if not args.no_peer:
                try:
                    theirs, their_page, their_ready = peer(args.build.resolve(), args.python, tmp, events)
                    size = their_page.stat().st_size / 1e6
                    rows.append(("memray --temporal", events, f"{theirs:.1f}", f"{events / theirs:.0f}", f"{size:.2f}",
                           "-" if their_ready is None else f"{their_ready:.0f}", "-", ""))  # fmt: skip
                    verdict += f"; memray: {mb / size:.2f} times its bytes, {seconds / theirs:.2f} times its seconds"
                except (RuntimeError, OSError) as e:
                    rows.append(("memray --temporal", events, "-", "-", "-", "-", "-", f"left out: {e}"))
                row, beside = viz_row(args, tmp, events, mb, ready)
                rows.append(row)
                verdict += beside
            print(LINE % ("sonde report", events, f"{seconds:.1f}", f"{events / seconds:.0f}", f"{mb:.2f}",
                          f"{ready or 0:.0f}", f"{drag or 0:.0f}", verdict), flush=True)  # fmt: skip
            for row in rows:
                print(LINE % row, flush=True)
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
