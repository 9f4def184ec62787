# SPDX-License-Identifier: MulanPSL-2.0
"""Pictures of sonde report as people use them: memory that ran out, what a pointer and a finger find, tables of
many rows, two recordings whose owners are known differently, the slowest rank of a recording, colours for
eyes that see fewer of them, paper."""

import base64
import json
import os
import pathlib
import random
import re
import sys

import axe
import pytest
from cuda_recorded import Cuda
from test_report_page import COLUMNS, HOSTILE, Page, browser, craft_trace, record, run  # noqa: F401
from waiting import wait_until

WEB = pathlib.Path(__file__).resolve().parents[2] / "src/web"


@pytest.fixture(scope="module")
def refused(build, tmp_path_factory):
    """A recording in which memory ran out, and its report."""
    tmp = tmp_path_factory.mktemp("refused")
    out, page = tmp / "rec", tmp / "r.html"
    run(build / "bin/msmemscope", "--call-stack=c:20", "--analysis=leaks,decompose,oom", "--report=off", f"--output={out}",
        "--", build / "sim/simtrain", "--quiet", "--steps", 6, "--fault", "oom",
        env={**os.environ, "LD_LIBRARY_PATH": str(build / "sim")})  # fmt: skip
    run(build / "bin/sonde", "report", "-o", page, out)
    return out, page


def words_drawn(page, canvas):
    """The texts that a picture draws, as it draws itself anew."""
    return page.js(f"((c) => {{ const g = c.canvas.getContext('2d'), seen = [], real = g.fillText.bind(g);"
                   f" g.fillText = (t, ...r) => {{ seen.push(t); real(t, ...r); }}; c.paint(); delete g.fillText;"
                   f" return seen; }})({canvas})")  # fmt: skip


def pixels(page, canvas, x, y, w=1, h=1):
    return page.js(f"[...{canvas}.canvas.getContext('2d').getImageData({x}, {y}, {w}, {h}).data]")


def test_memory_in_pieces_is_a_map(build, browser, tmp_path):  # noqa: F811
    """Memory that was there, but not in one piece: its picture is that of addresses."""
    cuda = Cuda(build, tmp_path)
    env = {"SIM_GPU_COUNT": "1", "SIM_GPU_MEMORY_MIB": "512", "SIM_GPU_STATE": str(tmp_path / "gpus")}
    _, _, where = cuda.record("0", "shatter", program=str(build / "targets/torch_pool"), options=["--call-stack=c:10"], **env)
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", where)
    page = Page(browser, tmp_path / "r.html")
    assert "fragmentation" in page.js("document.querySelector('[data-id=oom] .answer-text').textContent")
    assert page.js("document.querySelector('[data-id=oom] .links a').getAttribute('href')") == "#map"


@pytest.mark.parametrize("width", (1400, 390))
def test_an_answer_in_full(browser, refused, width):  # noqa: F811
    """As the command prints it, line by line, and not over its neighbours."""
    page = Page(browser, refused[1], width=width)
    page.js("document.querySelectorAll('.answers details').forEach((d) => { d.open = true; })")
    texts = page.js("[...document.querySelectorAll('.answers pre')].map((p) => p.innerText)")
    assert texts and max(text.count("\n") for text in texts) > 4 and not any("\ufffd" in t for t in texts)
    assert page.js("document.documentElement.scrollWidth") <= width


def test_memory_that_ran_out_is_marked(build, browser, refused):  # noqa: F811
    out, path = refused
    page = Page(browser, path)
    said = json.loads(run(build / "bin/sonde", "mem", "oom", "--json", out).stdout)
    ooms = page.js("p.memories[0].model.ooms.map((o) => [o.at_ns, o.bytes])")
    assert len(ooms) == said["requests"] > 0 and ooms[0][1] >= 4 << 30
    # the first answer is what was found
    assert page.js("document.querySelector('#answers .answer').dataset.id") == "oom"
    assert any("out of memory: 4.00 GiB" in t for t in words_drawn(page, "p.chart.picture"))
    assert any("4.00 GiB did not fit" in t for t in words_drawn(page, "p.map.picture"))
    # and is seen: a red line where it happened, above the bands and through the map
    around = [ooms[0][0] - 20000, ooms[0][0] + 20000]
    page.js(f"p.state.setRange({around[0]}, {around[1]})")
    page.b.until("!sondeReport.chart.picture.dirty && !sondeReport.map.picture.dirty")
    for canvas, object_ in (("p.chart.picture", "p.chart"), ("p.map.picture", "p.map")):
        area = page.js(f"{object_}.area({canvas}.width, {canvas}.height({canvas}.width))")
        x = page.js(f"{object_}.xOf({ooms[0][0]}, {json.dumps(area)})")
        row = pixels(page, canvas, int(x) - 2, int(area["top"]) + 30, 5)
        assert any(row[i] > row[i + 1] + 80 and row[i] > row[i + 2] + 80 for i in range(0, len(row), 4)), row
    page.check()


def move(page, selector, x, y, kind="mouseMoved"):
    page.js(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
    box = page.js(f"(({{left, top}}) => [left, top])(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")
    for back in (1, 0):
        page.b.ask("Input.dispatchMouseEvent", type=kind, x=box[0] + x - back, y=box[1] + y)


def test_a_pointer_finds_who_when_and_how_long(browser, refused):  # noqa: F811
    page = Page(browser, refused[1])
    tip = lambda: page.js("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")
    # the innermost box of the largest stack: all its callers
    box = page.js("p.flame.boxes.filter((b) => b.w > 60).reduce((a, b) => (b.y > a.y ? b : a))")
    move(page, "#flame canvas", box["x"] + box["w"] / 2, box["y"] + 8)
    callers = page.js(f"p.tree.stack({box['node']})")
    text = wait_until(tip)
    assert callers[0] in text and all(c in text for c in callers[1:]) and "GiB" in text and "%" in text
    # the largest block of the map: how large, whose, from when on, for how long, where
    page.js("p.state.setRange(p.memories[0].model.ooms[0].at_ns - 100000, p.memories[0].model.ooms[0].at_ns + 100000)")
    page.b.until("!sondeReport.map.picture.dirty")
    block = page.js("p.map.shown.reduce((a, b) => (b.right - b.left) * (b.bottom - b.top) >"
                    " (a.right - a.left) * (a.bottom - a.top) ? b : a)")  # fmt: skip
    move(page, "#map canvas", (block["left"] + block["right"]) / 2, (block["top"] + block["bottom"]) / 2)
    text = wait_until(lambda: "0x" in tip() and tip())
    assert "4.00 GiB, PTA" in text and re.search(r"from [\d.]+ ms for [\d.]+ [µm]s", text) and "allocate_until_oom" in text
    # a moment of the chart: who holds how much
    move(page, "#memory canvas", page.js("p.chart.xOf(p.memories[0].model.ooms[0].at_ns, p.chart.scale.a)") - 6, 150)
    text = wait_until(lambda: "step 3" in tip() and tip())
    assert "allocate_until_oom" in text and "60.0 GiB" in text
    page.b.ask("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    wait_until(lambda: tip() == "")
    page.check()


def test_a_finger_zooms_and_selects(browser, refused):  # noqa: F811
    page = Page(browser, refused[1], width=390)
    page.b.ask("Emulation.setTouchEmulationEnabled", enabled=True)
    try:
        def touch(selector, points):
            page.js(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
            left, top = page.js(f"(({{left, top}}) => [left, top])(document.querySelector({json.dumps(selector)})"
                                f".getBoundingClientRect())")  # fmt: skip
            at = [[{"x": left + x, "y": top + y}] for x, y in points]
            page.b.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=at[0])
            for p in at[1:]:
                page.b.ask("Input.dispatchTouchEvent", type="touchMove", touchPoints=p)
            page.b.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

        box = page.js("p.flame.boxes.find((b) => b.w > 100 && b.y > 60)")
        touch("#flame canvas", [(box["x"] + 30, box["y"] + 8)])
        page.b.until(f"sondeReport.flame.zoomed === {box['node']}")
        touch("#memory canvas", [(100, 100), (140, 102), (200, 103), (260, 104)])
        page.b.until("sondeReport.state.range !== null")
    finally:
        page.b.ask("Emulation.setTouchEmulationEnabled", enabled=False)
    page.check()


def test_bands_are_of_your_own_lines(build, browser, tmp_path):  # noqa: F811
    """One for a line, whatever it called: `import torch` is one of thousands of places."""
    rows = [COLUMNS]
    for i in range(40):
        stack = f"/opt/site-packages/torch/m{i}.py({i + 1}): f{i}\n/srv/train.py(3): <module>"
        rows.append(f'{i + 1},MALLOC,PTA,N/A,{1000 * i},7,7,0,{4096 * (i + 1)},"{{allocation_id:{i + 1},addr:{4096 * (i + 1)},'
                    f'size:512,owner:PTA,total:99999,used:{512 * (i + 1)}}}","{stack}",N/A')  # fmt: skip
    (tmp_path / "memscope_dump_1.csv").write_text("\n".join(rows) + "\n")
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", tmp_path / "memscope_dump_1.csv")
    page = Page(browser, tmp_path / "r.html")
    bands = page.js("p.memories[0].bands('line', p.state.scope).map((b) => b.name)")
    assert bands[0] == "<module> (train.py:3)" and len([b for b in bands if "train.py" in b]) == 1, bands
    where = page.js("p.tables.sites.list.map((r) => p.memories[0].where(r.site))")
    assert len(set(where)) == 40 and all(w.startswith("<module> (train.py:3) via f") for w in where), where
    page.check()


def test_what_was_found_is_found(browser, build, tmp_path):  # noqa: F811
    """Also where a part of the memory is not covered: the leak is there, and comes first."""
    script = tmp_path / "job.py"
    script.write_text("""
import ctypes, msmemscope
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_void_p
kept = []
for step in range(12):
    # memory that nobody can see being asked for: the kernel itself is
    where = libc.syscall(9, None, 8 << 20, 3, 0x22, -1, 0)
    ctypes.memset(where, 1, 8 << 20)
    kept.append(bytearray(1 << 20))
    msmemscope.step()
""")
    env = {**os.environ, "PYTHONPATH": str(build / "python")}
    words = [build / "bin/sonde", "mem", "record", "--device=cpu", "-o", tmp_path / "out", "--", sys.executable, script]
    run(*words, env=env)
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", tmp_path / "out")
    page = Page(browser, tmp_path / "r.html")
    leaks = page.js("p.memories[0].model.answers.find((a) => a.id === 'leaks')")
    assert leaks["findings"] and not leaks["judged"], leaks
    first = page.js("(({ dataset, innerText, className }) => [dataset.id, innerText, className])(document.querySelector('#answers .answer'))")
    assert first[0] == "leaks" and first[1].startswith("found") and "found" in first[2], first


def test_what_a_stranger_asks_first(browser, build, tmp_path):  # noqa: F811
    """A leak that is gone at the end has grown; an owner that is everything is lines instead; imports are the
    modules that import, and not Python's way of doing it."""
    (tmp_path / "library.py").write_text("held = [bytearray(300_000) for _ in range(4)]\n")
    (tmp_path / "job.py").write_text("""
import msmemscope
import library
def lose(kept):
    kept.append(bytearray(1 << 20))
def job():
    kept = []
    for step in range(8):
        lose(kept)
        msmemscope.step()
    kept.clear()
    msmemscope.step()
job()
""")
    env = {**os.environ, "PYTHONPATH": str(build / "python")}
    words = [build / "bin/sonde", "mem", "record", "--device=cpu", "-o", tmp_path / "out", "--", sys.executable]
    run(*words, tmp_path / "job.py", env=env)
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", tmp_path / "out")
    page = Page(browser, tmp_path / "r.html")
    sites = page.js("p.tables.sites.rows.map((r) => [p.memories[0].where(r.site), r.growth])")
    growth = sum(g for where, g in sites if where.startswith("lose (job.py:5)"))
    assert 5 << 20 <= growth <= 8 << 20, sites
    assert abs(page.bytes_of("growth") - sum(g for _, g in sites)) < 4096
    owners = page.js("p.memories[0].model.answers.find((a) => a.id === 'owners').answer")
    assert "% HOST" not in owners and re.search(r"\d+ % lose \(job\.py:5\)", owners), owners
    # what has no other frame keeps its innermost one
    frames = page.js("(() => { const t = p.tree, all = []; for (let n = 1; n < t.count; n++) if (t.parent[n]) all.push(t.label(n)); return all; })()")
    assert any("library.py:1" in f for f in frames) and not any("<frozen importlib" in f for f in frames), frames
    cards = page.js("[...document.querySelectorAll('#answers .answer')].map((a) => [a.className, !!a.querySelector('details')])")
    assert all(details for name, details in cards if "brief" in name), cards
    assert page.js("document.querySelector('#answers [data-id=owners] .state').innerText") == "owners"
    page.check()


def test_what_grows_without_steps_comes_first(build, browser, tmp_path):  # noqa: F811
    rows = [COLUMNS]
    for i in range(240):
        rows.append(f'{i + 1},MALLOC,HOST,N/A,{10**9 * i},7,7,cpu,{(i + 1) << 21},"{{allocation_id:{i + 1},addr:{(i + 1) << 21},'
                    f'size:{1 << 20},owner:HOST,total:9,used:9}}","/srv/serve.py(3): grow",N/A')  # fmt: skip
    (tmp_path / "memscope_dump_1.csv").write_text("\n".join(rows) + "\n")
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", tmp_path / "memscope_dump_1.csv")
    page = Page(browser, tmp_path / "r.html")
    first = page.js("(({ dataset, className, innerText }) => [dataset.id, className, innerText])(document.querySelector('#answers .answer'))")
    assert first[0] == "leaks" and "brief" not in first[1] and first[2].startswith("grows"), first
    page.check()


def test_a_recording_of_nothing_has_no_empty_pictures(build, browser, tmp_path):  # noqa: F811
    run(build / "bin/sonde", "mem", "record", "-o", tmp_path / "out", "--", "/bin/true")
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", tmp_path / "out")
    page = Page(browser, tmp_path / "r.html")
    text = page.js("document.body.innerText")
    assert "No memory was recorded" in text and "--device" in text
    assert page.js("document.querySelectorAll('canvas').length") == 0
    page.check()


def test_tables_of_tens_of_thousands_of_rows(build, browser, tmp_path):  # noqa: F811
    """All are there, sorted and searched; only those that are seen are elements of the page."""
    random.seed(3)
    sites, rows = 25000, [COLUMNS]
    sizes = [512 * random.randrange(1, 5000) for _ in range(sites)]
    for i, size in enumerate(sizes):
        rows.append(f'{i + 1},MALLOC,PTA,N/A,{1000 + i},7,7,0,{(i + 1) << 24},"{{allocation_id:{i + 1},addr:{(i + 1) << 24},'
                    f'size:{size},owner:PTA,total:9,used:9}}","/srv/a{i % 97}.py({i}): f{i}",N/A')  # fmt: skip
    (tmp_path / "memscope_dump_1.csv").write_text("\n".join(rows) + "\n")
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", tmp_path / "memscope_dump_1.csv")
    page = Page(browser, tmp_path / "r.html")
    assert page.js("p.tables.sites.rows.length") == sites
    largest = sorted(sizes, reverse=True)
    assert page.js("p.tables.sites.list.slice(0, 50).map((r) => r.bytes)") == largest[:50]
    assert page.js("document.querySelectorAll('#tables .body .row').length") < 60
    page.js("(() => { const g = document.querySelector('#tables .grid'); g.scrollTop = g.scrollHeight; })()")
    page.b.until("document.querySelector('#tables .body .row:last-child').getAttribute('aria-rowindex') === '25001'")
    assert page.js("document.querySelectorAll('#tables .body .row').length") < 60
    took = page.js("(() => { const t = performance.now(); p.tables.sites.sortBy(1); return performance.now() - t; })()")
    names = page.js("p.tables.sites.list.map((r) => p.memories[0].texts[p.memories[0].site.line[r.site]])")
    assert names == sorted(names) and took < 2000
    page.js("document.querySelector('#tables input').focus()")
    page.b.ask("Input.insertText", text="F24999 ")
    assert page.js("p.tables.sites.list.length") == 1
    assert "1 of 25,000 rows" in page.js("document.querySelector('#tables').innerText")
    page.check()


def test_helpers_take_no_map_away(build, browser, tmp_path):  # noqa: F811
    """Of many processes those with the most memory have a map; of the others the page says that they have none."""
    rows, n = [COLUMNS], 0
    for pid in range(1, 42):
        for i in range(3):
            size = (1 << 24) + (i << 9) if pid == 40 else 4096
            n += 1
            rows.append(f'{n},MALLOC,PTA,N/A,{1000 * n},{pid},{pid},0,{n << 26},"{{allocation_id:{n},addr:{n << 26},'
                        f'size:{size},owner:PTA,total:9,used:9}}","/srv/a.py({pid}): f{pid}",N/A')  # fmt: skip
    (tmp_path / "memscope_dump_1.csv").write_text("\n".join(rows) + "\n")
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", tmp_path / "memscope_dump_1.csv")
    page = Page(browser, tmp_path / "r.html")
    scopes = page.js("p.memories[0].model.scopes.map((s) => s.pid)")
    assert scopes[page.js("p.state.scope")] == 40 and page.js("p.map.shown.length") == 3
    with_map = page.js("p.memories[0].pools.filter((x) => x && x.map).map((x) => p.memories[0].model.scopes[x.scope].pid)")
    assert len(with_map) == 24 and 40 in with_map
    text = "document.querySelector('#map').innerText"
    assert "not drawn" not in page.js(text)
    page.pick("Device", str(scopes.index(next(pid for pid in scopes if pid not in with_map))))
    assert "not drawn" in page.js(text) and page.js("p.map.picture.box.hidden")
    page.pick("Device", str(scopes.index(40)))
    assert "not drawn" not in page.js(text) and not page.js("p.map.picture.box.hidden")
    page.check()


def test_who_knows_owners_better_is_no_difference(build, browser, tmp_path):  # noqa: F811
    """One job twice, once with operators: memory is equal at every call site."""
    paths = [record(build, tmp_path, name, "--steps", 5, *more) for name, more in (("a", ()), ("b", ("--aten",)))]
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", *paths)
    page = Page(browser, tmp_path / "r.html")
    rows = page.js("p.compared.rows.map((r) => [r.where, r.difference, r.owner])")
    assert rows and all(r[1] == 0 for r in rows), rows
    assert ["PTA → PTA@ops"] == sorted({r[2] for r in rows if "create_weights" in r[0]})
    assert page.js("document.querySelector('#memory h2').innerText") == "Memory over time: b"
    page.check()


def test_the_slowest_rank_of_a_recording(build, browser, tmp_path):  # noqa: F811
    """What sonde record has of device time is shown step by step, with the verdict of `sonde activity summary`."""
    out = tmp_path / "rec"
    run(build / "bin/sonde", "record", "--mspti", build / "sim/libmspti.so", "-o", out, "--", build / "sim/simtrain",
        "--quiet", "--ranks", 4, "--steps", 40, "--slow-rank", "2:1.5",
        env={**os.environ, "SIM_NPU_TIME_SCALE": "1"})  # fmt: skip
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", out)
    (recording,) = out.glob("recording_*")
    said = json.loads(run(build / "bin/sonde", "activity", "summary", "--json", recording).stdout)
    assert said["slowest"]["rank"] == 2
    page = Page(browser, tmp_path / "r.html")
    assert page.js("p.activities[0].time.model.by") == "step"
    rows = page.js("p.activities[0].time.rows.map((r) => [r.rank, r.slowest, r.number.length])")
    assert [r[:2] for r in rows] == [[0, False], [1, False], [2, True], [3, False]] and all(r[2] >= 30 for r in rows)
    first = page.js("document.querySelector('#answers .answer').innerText")
    assert "Rank 2 is the slowest" in first and "sonde activity summary" in first
    assert "slowest" in words_drawn(page, "p.activities[0].time.picture")
    assert axe.serious(page.b) == []
    page.check()


def test_words_of_a_profile(build, browser, tmp_path):  # noqa: F811
    """Where most of the time is, before the picture of it; names are text."""
    path = tmp_path / "a.collapsed.txt"
    path.write_text(f"process 1;thread 2;main (job/train.py:9);step (job/train.py:4) 60\n"
                    f"process 1;thread 2;main (job/train.py:9);step (job/train.py:5) 15\n"
                    f"process 1;thread 2;{HOSTILE} 25\n")  # fmt: skip
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", path)
    page = Page(browser, tmp_path / "r.html")
    text = page.js("document.querySelector('#stacks p').innerText")
    assert "75.0 % are in step (job/train.py) itself" in text and "25.0 % are in </script><img" in text
    assert "processes and threads" in page.js("document.querySelector('#stacks').innerText")
    assert axe.serious(page.b) == []
    page.check()


@pytest.mark.parametrize("frames", [20, 60, 400])
def test_deep_stacks_are_a_profile(build, browser, tmp_path, frames):  # noqa: F811
    """Lines of collapsed text are as long as stacks are deep; also in the file's first line."""
    path = tmp_path / "a.txt"
    path.write_text(";".join(f"function_{i} (package/module_{i}.py:{i})" for i in range(frames)) + " 9\n")
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", path)
    page = Page(browser, tmp_path / "r.html")
    deepest = page.js("p.profiles[0].own.findIndex((v) => v === 9)")
    assert len(page.js(f"p.tree.stack({deepest})")) == frames
    run(build / "bin/sonde", "flame", "-o", tmp_path / "a.svg", path)
    page.check()


def test_hostile_names_in_all_pictures(build, browser, tmp_path):  # noqa: F811
    """Markup, escapes, 4 KiB and bytes that are no UTF-8: as the title, in stacks, kernels and hosts, on a phone."""
    evil = HOSTILE + "x" * 4096
    frames = [evil, "bad \udcff\udcfe", "--><svg onload=document.title='evil'>"]
    text = ";".join(frames) + " 5\n" + ";".join(reversed(frames)) + " 7\n"
    (tmp_path / "h.collapsed.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    craft_trace(tmp_path / "trace")
    for summary in (tmp_path / "trace").glob("*/summary.json"):
        made = json.loads(summary.read_text())
        made["host"] = made["kernels"][0]["name"] = evil
        summary.write_text(json.dumps(made))
    run(build / "bin/sonde", "report", "--title", evil, "-o", tmp_path / "r.html", tmp_path / "h.collapsed.txt",
        tmp_path / "trace")  # fmt: skip
    for width in (1280, 390):
        page = Page(browser, tmp_path / "r.html", width=width)
        assert page.js("p.profiles.length") == 1 and page.js("p.activities.length") == 1
        shown = page.b.js("document.body.innerText")
        assert shown.count("<img src=x") >= 3 and "\x1b" not in shown and "\u202e" not in shown
        words = words_drawn(page, "p.profiles[0].picture") + words_drawn(page, "p.activities[0].time.picture")
        assert words and all(len(w) < 300 and "\x1b" not in w and "\u202e" not in w for w in words)
        assert page.b.js("document.documentElement.scrollWidth <= innerWidth")
        if width == 390: # a telephone has no pointer
            page.check()
            continue
        move(page, "#stacks canvas", 40, 30)
        page.b.until("!document.getElementById('tip').hidden")
        tip = page.js("(({width, left}) => [width, left])(document.getElementById('tip').getBoundingClientRect())")
        assert 0 <= tip[1] and tip[0] + tip[1] <= width + 1
        page.check()


# --- colours ---

# What eyes see that lack one kind of cone (Machado and others, 2009), of linear light.
EYES = {
    "red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}


def seen_as(colour, eye):
    """L*a*b* of a colour, as such an eye sees it."""
    light = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    light = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in light]
    r, g, b = (max(0, min(1, sum(m * v for m, v in zip(row, light, strict=True)))) for row in EYES[eye])
    xyz = [(0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047, 0.2126 * r + 0.7152 * g + 0.0722 * b,
           (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883]  # fmt: skip
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def apart(a, b, eye):
    return sum((p - q) ** 2 for p, q in zip(seen_as(a, eye), seen_as(b, eye), strict=True)) ** 0.5


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("eye", EYES)
def test_colours_are_told_apart(eye, dark):
    """Bands that lie on each other, and parts of device time, differ for every eye; so do the first bands."""
    css = (WEB / "report/report.css").read_text().split(":root.dark")[dark]
    colour = lambda name: re.search(rf"--{name}: (#[0-9a-f]{{6}})", css).group(1)
    bands = [colour(f"band{i}") for i in range(1, 13)]
    assert min(apart(a, b, eye) for a, b in zip(bands, bands[1:])) > 20
    first = bands[:6]
    assert min(apart(a, b, eye) for i, a in enumerate(first) for b in first[:i]) > 8
    parts = [colour(name) for name in ("compute", "comm", "copy", "idle")]
    assert min(apart(a, b, eye) for i, a in enumerate(parts) for b in parts[:i]) > 15
    assert apart(colour("more"), colour("less"), eye) > 30
    assert apart(colour("users"), colour("library"), eye) > 12


def test_on_paper(browser, refused):  # noqa: F811
    """Light, without what only a screen can use, and with its pictures."""
    page = Page(browser, refused[1], dark=True)
    page.b.ask("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    try:
        page.b.until("!document.documentElement.classList.contains('dark')")
        assert page.js("[...document.querySelectorAll('nav, #bar, .controls, .tools')].every((e) => getComputedStyle(e).display === 'none')")
        assert page.js("getComputedStyle(document.querySelector('#memory canvas')).display") == "block"
        paper = page.b.ask("Page.printToPDF", printBackground=True, preferCSSPageSize=False)["data"]
        assert base64.b64decode(paper)[:5] == b"%PDF-" and len(paper) > 50000
    finally:
        page.b.ask("Emulation.setEmulatedMedia", media="")
    page.check()
