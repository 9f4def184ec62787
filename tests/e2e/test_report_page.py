# SPDX-License-Identifier: MulanPSL-2.0
"""sonde report in a real browser: the pictures have the numbers of the commands, they follow a range
of time, and names of jobs are text."""

import base64
import gzip
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import sys

import axe
import pytest
from browser import Browser

HOSTILE = "</script><img src=x onerror=document.title='evil'>\x1b[31m\u202e"


def run(*words, **more):
    r = subprocess.run(list(map(str, words)), capture_output=True, timeout=120, **more)
    assert r.returncode == 0, r.stderr
    return r


class Page:
    """A report that is open in the browser of the module."""

    def __init__(self, browser, path, width=1280, dark=False):
        self.b = browser
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.ask("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.ask("Emulation.setEmulatedMedia", features=[feature])
        browser.events.clear()
        browser.ask("Page.navigate", url=path.as_uri())
        browser.until("!!window.sondeReport && document.readyState === 'complete'")

    def js(self, expression):
        return self.b.js(f"(() => {{ const p = window.sondeReport; return {expression}; }})()")

    def pick(self, label, value):
        """Chooses in the list that has this label."""
        return self.js(
            f"(() => {{ const l = [...document.querySelectorAll('label.field')].find((x) =>"
            f" x.innerText.startsWith({json.dumps(label)})); const s = l.querySelector('select');"
            f" s.value = {json.dumps(value)}; s.dispatchEvent(new Event('change')); return s.value }})()"
        )

    def key(self, name, **more):
        """Presses a key where the focus is."""
        for kind in ("keyDown", "keyUp"):
            self.b.ask("Input.dispatchKeyEvent", type=kind, key=name, **more)

    def drag(self, selector, left, right):
        """Moves the pressed mouse over a picture, between two parts of its width."""
        self.js(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        box = self.js(f"(({{left, top, width, height}}) => [left, top, width, height])"
                      f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")  # fmt: skip
        y = box[1] + box[3] / 2
        steps = [("mousePressed", left), ("mouseMoved", (left + right) / 2), ("mouseMoved", right)]
        for kind, part in [*steps, ("mouseReleased", right)]:
            x = box[0] + box[2] * part
            self.b.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1,
                       clickCount=1)  # fmt: skip

    def bytes_of(self, moment, unit="bytes"):
        """What the flame graph has at a moment, by its own model."""
        self.pick("Memory", moment)
        self.pick("By", unit)
        return self.js("p.flame.net[0]")

    def check(self):
        """Nothing went wrong, nothing was fetched, and nothing was written into the page as markup."""
        urls = [e["params"]["request"]["url"] for e in self.b.events
                if e.get("method") == "Network.requestWillBeSent"]  # fmt: skip
        assert urls and all(u.startswith(("file:", "data:", "blob:")) for u in urls), urls
        wrong = [e for e in self.b.events if e.get("method") == "Runtime.exceptionThrown"
                 or e.get("method") == "Runtime.consoleAPICalled"
                 or (e.get("method") == "Log.entryAdded" and
                     e["params"]["entry"]["level"] == "error")]  # fmt: skip
        assert not wrong, wrong[:2]
        assert self.b.js("document.querySelectorAll('img, iframe, object').length") == 0
        assert self.b.js("document.title") != "evil"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("chromium")) as b:
        yield b


def record(build, tmp, name, *train, analysis="leaks,decompose,inefficient,oom"):
    out = tmp / name
    run(build / "bin/msmemscope", "--call-stack=c:20", f"--analysis={analysis}", "--report=off",
        f"--output={out}", "--", build / "sim/simtrain", "--quiet", *train)  # fmt: skip
    return out


@pytest.fixture(scope="module")
def made(build, tmp_path_factory):
    """A recording of a job that leaks on one of its devices, and its report."""
    tmp = tmp_path_factory.mktemp("report")
    out = record(build, tmp, "rec", "--steps", 10, "--devices", 2, "--fault", "leak")
    page = tmp / "r.html"
    said = run(build / "bin/sonde", "report", "--json", "-o", page, out)
    return out, page, json.loads(said.stdout)


def ask(build, *words):
    return json.loads(run(build / "bin/sonde", "mem", *words[:1], "--json", *words[1:]).stdout)


def test_numbers_are_those_of_the_commands(build, browser, made):
    out, path, written = made
    assert written["bytes"] == path.stat().st_size < 300000 and written["recordings"] == 1
    page = Page(browser, path)
    peak, end = ask(build, "owners", out), ask(build, "owners", "--at=end", out)
    scopes = page.js("p.model.memory[0].scopes")
    assert len(scopes) == len(peak["devices"]) == 2
    for device in peak["devices"]:
        (i,) = [k for k, s in enumerate(scopes) if s["device"] == device["device"]]
        page.pick("Device", str(i))
        assert page.bytes_of("peak") == device["bytes"] == scopes[i]["peak_bytes"]
        owners = {o["owner"]: o["bytes"] for o in device["owners"]}
        rows = page.js("p.tables.owners.rows.filter((r) => r.depth === 1).map((r) => [r.path, r.bytes])")
        assert dict(rows) == owners
        # the bands at the peak add up to it, and so does the pixel column in which it lies
        bucket = page.js(f"p.memories[0].bucketOf({scopes[i]['peak_ns']})")
        bands = page.js(f"p.chart.bands.reduce((a, b) => a + b.series[{bucket}], 0)")
        assert bands == device["bytes"]
        assert page.js(f"p.chart.columns(p.chart.scale.a).includes({bucket})")
    left = {d["device"]: d["bytes"] for d in end["devices"]}
    for i, s in enumerate(scopes):
        page.pick("Device", str(i))
        assert page.bytes_of("end") == left[s["device"]]
    for answer in page.js("p.model.memory[0].answers.map((a) => [a.command, a.text])"):
        text = run(build / "bin/sonde", *answer[0].split()[1:], out).stdout.decode()
        first = lambda t: " ".join(t.split("\n\n")[0].split())
        assert first(answer[1]) == first(text)
    assert "leak_one_buffer" in page.js("document.querySelector('[data-id=leaks]').innerText")
    page.check()


def test_all_pictures_follow_a_range(build, browser, made):
    page = Page(browser, made[1])
    length = page.js("p.memories[0].lengthNs")
    start, everything = page.js("p.state.view()[0]"), page.js("p.tables.sites.rows.length")
    page.drag("#memory canvas", 0.25, 0.8)
    low, high = page.js("p.state.range")
    assert start + 0.1 * (length - start) < low < high < start + 0.9 * (length - start)
    assert page.js("document.getElementById('range').innerText").count(" to ") == 1
    assert page.js("p.state.what") == "highest"
    # from the third step to the eighth: a busy machine may stop the job for most of a range of pixels
    page.js("p.state.setRange(...p.memories[0].stepsOf(p.state.scope).filter((s) => s.number === 3 || s.number === 8).map((s) => s.start))")
    page.b.until("!sondeReport.chart.picture.dirty")
    # allocated in it: what the model has between the two buckets, which is less than in all
    sums = ("p.memories[0].values({kind: 'allocated', from: FROM, to: TO}, false, p.state.scope)"
            ".sites.reduce((a, v) => a + v, 0)")  # fmt: skip
    low, high = page.js("p.state.buckets()")
    part = page.js(sums.replace("FROM", str(low)).replace("TO", str(high)))
    assert page.bytes_of("allocated") == part
    last = page.js("p.memories[0].buckets - 1")
    assert 0 < part < page.js(sums.replace("FROM", "0").replace("TO", str(last)))
    # all allocations of the whole recording are the bytes of its rows
    assert page.js("p.tables.sites.rows.length") <= everything
    growth = page.bytes_of("growth")
    net = [page.js(f"p.memories[0].values({{kind: 'at', to: {b}}}, false, p.state.scope)"
                   ".sites.reduce((a, v) => a + v, 0)") for b in (low - 1, high)]  # fmt: skip
    assert growth == net[1] - net[0]
    page.b.js("document.querySelector('#bar button').click()")
    assert page.js("p.state.range") is None
    page.check()


def test_keyboard_and_search(browser, made):
    page = Page(browser, made[1])
    page.js("document.querySelector('#memory canvas').focus()")
    page.key("ArrowRight")
    assert page.js("p.state.what") == "at" and page.js("p.state.at") is not None
    at = page.js("p.state.at")
    page.key("ArrowRight", modifiers=8)
    page.key("ArrowRight", modifiers=8)
    page.key("Enter")
    low, high = page.js("p.state.range")
    assert low == at and high > low
    page.key("Escape")
    page.key("Escape")
    assert page.js("p.state.range") is None and page.js("p.state.at") is None
    page.key("/")
    assert page.js("document.activeElement.type") == "search"
    page.b.ask("Input.insertText", text="LEAK_one")
    assert page.js("p.flame.hitTotal") > 0 and "leak_one" in page.js("p.flame.line.innerText")
    hits = page.js("p.flame.tree.label([...p.flame.hits].findIndex((v) => v & 1))")
    assert "leak_one_buffer" in hits
    page.key("Escape")
    assert page.js("p.flame.hits") is None
    page.js("document.querySelector('#flame canvas').focus()")
    for _ in range(4):
        page.key("ArrowDown")
    page.key("Enter")
    zoomed = page.js("p.flame.zoomed")
    assert zoomed > 0 and "Esc" in page.js("p.flame.line.innerText")
    page.b.until("sondeReport.flame.boxes.find((b) => b.node === sondeReport.flame.zoomed).w"
                 " === sondeReport.flame.picture.width")  # fmt: skip
    page.key("Escape")
    assert page.js("p.flame.zoomed") == 0
    page.check()


def test_boxes_and_bands_are_drawn(browser, made):
    """What the pictures show on the screen, by pixels."""
    page = Page(browser, made[1])
    colour = ("((c, x, y) => [...c.getContext('2d').getImageData(Math.round(x), Math.round(y), 1, 1).data]"
              ".slice(0, 3))")  # fmt: skip
    users = page.js("p.tree.kind.indexOf(1)")
    assert users >= 0
    box = page.js("p.flame.boxes.find((b) => b.w > 200 && p.tree.kindOf(b.node) === 1)")
    seen = page.js(f"{colour}(p.flame.picture.canvas, {box['x'] + box['w'] - 8}, {box['y'] + 3})")
    assert seen == [0xEB, 0x9A, 0x4B]
    page.pick("Bands by", "owner")
    page.b.until("!sondeReport.chart.picture.dirty && sondeReport.chart.legendKey.startsWith('owner')")
    # a band from the bottom of the picture upwards: the first colour, as high as its bytes
    shape = page.js("({a: p.chart.scale.a, top: p.chart.scale.top, list: [...p.chart.columns(p.chart.scale.a)]})")
    a, x = shape["a"], int((shape["a"]["right"] - shape["a"]["left"]) * 0.8)
    value = page.js(f"p.chart.bands[0].series[{shape['list'][x]}]")
    height = value / shape["top"] * (a["bottom"] - a["top"])
    assert height > 20
    expected = [0x3B, 0x6E, 0xA5]
    at = lambda y: page.js(f"{colour}(p.chart.picture.canvas, {a['left'] + x + 0.5}, {y})")
    assert at(a["bottom"] - height / 2) == expected
    assert at(a["bottom"] - height - 4) != expected
    # the map: its largest block, in the colour of its band or of a finding, and an empty place
    assert page.js("p.map.shown.length") > 10
    block = page.js("p.map.shown.reduce((a, b) => (b.right - b.left) * (b.bottom - b.top) >"
                    " (a.right - a.left) * (a.bottom - a.top) ? b : a)")  # fmt: skip
    x, y = (block["left"] + block["right"]) / 2, (block["top"] + block["bottom"]) / 2
    wanted = page.js(f"p.map.colour(p.map.read(p.map.pool).blocks.site[{block['i']}])")
    assert page.js(f"{colour}(p.map.picture.canvas, {x}, {y})") == [
        int(wanted[i : i + 2], 16) for i in (1, 3, 5)
    ]
    page.check()


@pytest.mark.parametrize("width", (1280, 390))
def test_many_steps_do_not_hide_the_bands(build, browser, tmp_path, width):
    """Lines of steps are at least 40 pixels apart, and faint: columns that differ from both neighbours."""
    out = record(build, tmp_path, "rec", "--steps", 60, analysis="leaks")
    run(build / "bin/sonde", "report", "-o", tmp_path / "r.html", out)
    page = Page(browser, tmp_path / "r.html", width=width)
    assert page.js("p.memories[0].stepsOf(p.state.scope).length") == 60
    a, pixels = page.js(
        "(({a, c}) => ({0: a, 1: [...c.getContext('2d').getImageData(Math.round(a.left), Math.round(a.bottom) - 3,"
        " Math.round(a.right - a.left), 1).data]}))({a: p.chart.scale.a, c: p.chart.picture.canvas})"
    ).values()
    row = [pixels[i : i + 3] for i in range(0, len(pixels), 4)]
    lines = [x for x in range(1, len(row) - 1) if row[x - 1] == row[x + 1] != row[x]]
    assert 2 <= len(lines) <= (a["right"] - a["left"]) / 40 + 1, lines
    assert all(abs(p - q) < 60 for x in lines for p, q in zip(row[x], row[x - 1], strict=True))
    page.check()


def test_phone_and_dark(browser, made):
    page = Page(browser, made[1], width=390, dark=True)
    assert page.b.js("document.documentElement.scrollWidth") <= 390
    assert page.b.js("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    page.js("document.getElementById('theme').click()")
    assert page.b.js("getComputedStyle(document.body).backgroundColor") == "rgb(246, 245, 241)"
    assert page.js("p.chart.picture.canvas.width") <= 390
    page.check()


def test_accessible(browser, made):
    for dark in (False, True):
        Page(browser, made[1], dark=dark)
        assert axe.serious(browser) == []


COLUMNS = "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,Call Stack(Python),Call Stack(C)"


def test_hostile_names(build, browser, tmp_path):
    """Markup, escapes, 4 KiB and bytes that are no UTF-8 are text in every picture and table."""
    long = "x" * 4096
    names = [HOSTILE, long, "bad \udcff\udcfe", "--><svg onload=document.title='evil'>"]
    rows = [COLUMNS]
    for i, name in enumerate(names):
        stack = f'"{name}.py(7): {name}\n/srv/{name}(3): main"'
        rows.append(f'{i + 1},MALLOC,PTA,N/A,{1000 + i},7,7,0,{4096 * (i + 1)},"{{allocation_id:{i + 1},'
                    f'addr:{4096 * (i + 1)},size:4096,owner:PTA@{name.replace(",", "")},total:65536,used:4096}}",'
                    f"{stack},N/A")  # fmt: skip
    dump = tmp_path / "memscope_dump_1.csv"
    dump.write_bytes("\n".join(rows).encode("utf-8", "surrogateescape") + b"\n")
    path = tmp_path / "r.html"
    run(build / "bin/sonde", "report", "--title", HOSTILE, "-o", path, dump)
    page = Page(browser, path)
    assert page.js("p.memories[0].count") == len(names)
    for name in ("module", "line", "type", "owner"):
        page.pick("Bands by", name)
    labels = page.js("[...Array(p.tree.count).keys()].map((n) => p.tree.label(n)).join('\\n')")
    assert "</script><img" in labels and "x" * 4000 in labels and "�" in labels
    for i in range(4):
        page.js(f"p.tables.tabs.show({i})")
    text = page.b.js("document.body.innerText")
    assert "<img src=x" in text and "\x1b" not in text and "\u202e" not in text
    assert "onerror=document" in page.js("document.getElementById('title').textContent")
    page.check()


def carried(path):
    """The text of everything that a page carries, and of the page around it."""
    html = path.read_text()
    data = re.search(r'id="data">([^<]*)</script>', html).group(1)
    # without the hashes of the policy, in which a short name may be by chance
    outside = re.sub(r"sha256-[^']*", "", html.replace(data, ""))
    return gzip.decompress(base64.b64decode(data)), outside


def test_the_documented_reader_works(build, made, tmp_path):
    """The program in docs/json.md reads a page; what it prints is what the commands say."""
    root = pathlib.Path(__file__).resolve().parents[2]
    section = (root / "docs/json.md").read_text().split("## The data of a report")[1].split("\n## ")[0]
    code = re.search(r"```python\n(.*?)```", section, re.S).group(1)
    lines = subprocess.check_output([sys.executable, "-c", code, made[1]], text=True, timeout=60).splitlines()
    shown = ask(build, "show", "--top=0", made[0])
    peaks = sorted(d["peak_bytes"] for d in shown["devices"])
    left = ask(build, "owners", "--at=end", made[0])
    (line,) = lines
    said = re.fullmatch(r"(.*) (\[.*\]) (\d+)", line)
    assert said.group(1) == str(made[0]) and sorted(json.loads(said.group(2))) == peaks
    assert int(said.group(3)) == sum(d["bytes"] for d in left["devices"])
    # every array of the page, and every key of the model, is in the tables
    data, _ = carried(made[1])
    model = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    keys = [*model, *model["memory"][0], *model["memory"][0]["scopes"][0], *model["memory"][0]["pools"][0]]
    assert [k for k in keys if f"`{k}" not in section and k != "words"] == []
    names = {n.split(".")[-1] for n in model["arrays"] if ".map" not in n and not n.endswith("flags")}
    assert [n for n in names if f".{n}`" not in section] == []


def test_redacted(build, browser, tmp_path):
    """Names of hosts, users, paths and arguments are nowhere; those of frameworks stay."""
    own = "/srv/planteduser/planted_project/planted_train.py(7): PlantedNet.planted_step"
    torch = "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py(114): Linear.forward"
    c_frame = "planted_binary(planted_call<planted x, int>(planted*)+0x12) [0x1] /srv/planteduser/planted.cpp:3"
    rows = [COLUMNS]
    for i in range(12):
        rows += [f'{i + 1},MALLOC,PTA,N/A,{100 * i + 2},7,7,0,{4096 * (i + 1)},"{{allocation_id:{i + 1},'
                 f'addr:{4096 * (i + 1)},size:4096,owner:PTA@planted_label@weight,total:65536,used:4096}}",'
                 f'"{torch}\n{own}","{c_frame}"']  # fmt: skip
    dump = tmp_path / "memscope_dump_1.csv"
    dump.write_text("\n".join(rows) + "\n")
    secret = tmp_path / "planted_folder" / "planted_program"
    secret.parent.mkdir()
    shutil.copy(build / "sim/simtrain", secret)
    out = tmp_path / "planted_output"
    run(build / "bin/msmemscope", "--call-stack=c:20", "--report=off", f"--output={out}", "--", secret,
        "--quiet", "--steps", 4, "--seed=00077001133", "--fault", "leak",
        env={**os.environ, "LD_LIBRARY_PATH": str(build / "sim")})  # fmt: skip
    path = tmp_path / "r.html"
    for source in (dump, out):
        run(build / "bin/sonde", "report", "--redact", "-o", path, source)
        inside, outside = carried(path)
        for name in ("planted", "77001133", socket.gethostname(), str(tmp_path), "leak_one_buffer"):
            assert name.encode() not in inside and name not in outside, name
        assert b"function_" in inside and b"file_" in inside
        page = Page(browser, path)
        answer = page.js("document.querySelector('[data-id=leaks]').innerText")
        assert source == dump or re.search(r"loses .* in every step.*: function_\d+ \(file_\d+\.\w+:\d+\)", answer), answer
        page.check()
        if source == dump:
            assert b"linear.py" in inside and b"Linear.forward" in inside and b"label_1@weight" in inside
    run(build / "bin/sonde", "report", "--redact", "--keep-own-names", "-o", path, dump)
    inside, _ = carried(path)
    assert b"planted_step" in inside and b"planted_label" in inside and b"planted_train.py" in inside
    assert b"planteduser" not in inside and b"planted_project" not in inside


def test_redacted_profiles(build, tmp_path):
    """Where a profile names no file nobody knows whose a function is: only well-known names stay."""
    names = ["planted_model;planted_range 4", "aten::mm;planted_native 3"]
    (tmp_path / "a.collapsed.txt").write_text("\n".join(names) + "\n")
    named = [{"ph": "M", "name": what, "pid": 1, "tid": 1, "args": {"name": "planted"}}
             for what in ("process_name", "thread_name")]  # fmt: skip
    events = [{"ph": "X", "name": n, "pid": 1, "tid": 1, "ts": 1, "dur": 9} for n in ("planted_range", "aten::mm")]
    (tmp_path / "b.json").write_text(json.dumps({"traceEvents": named + events}))
    path = tmp_path / "r.html"
    for source in ("a.collapsed.txt", "b.json"):
        run(build / "bin/sonde", "report", "--redact", "-o", path, tmp_path / source)
        inside, outside = carried(path)
        assert b"planted" not in inside and "planted" not in outside and b"aten::mm" in inside
    run(build / "bin/sonde", "report", "--redact", "--keep-own-names", "-o", path, tmp_path / "a.collapsed.txt")
    assert b"planted_range" in carried(path)[0]


def test_a_trace_whose_names_are_long(build, tmp_path):
    """The name of a process is kept once, however many threads it has."""
    events = [{"ph": "B", "name": "k", "pid": 1, "tid": n, "ts": 1} for n in range(9000)]
    events.append({"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": "x" * 500_000}})
    events += [{"ph": "E", "pid": 1, "tid": n, "ts": 3} for n in range(9000)]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    subprocess.run([build / "bin/sonde", "report", "-o", tmp_path / "r.html", tmp_path / "t.json"], check=True,
                   timeout=60, capture_output=True, preexec_fn=limit)  # fmt: skip


def test_the_file_needs_nothing_else(made):
    """One file, whose policy allows its own script and style and nothing else."""
    html = made[1].read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html).group(1)
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
    assert not re.findall(r"https?://", html)
    assert not re.search(r"\sstyle=|\son\w+=\"|innerHTML|document\.write|\beval\(", html)
    web = pathlib.Path(__file__).resolve().parents[2] / "src/web/report"
    assert sum(f.stat().st_size for f in web.iterdir()) < 120000
    data = re.search(r'id="data">([^<]*)</script>', html).group(1)
    assert base64.b64decode(data)[:2] == b"\x1f\x8b"


def craft_trace(top, ranks=3, steps=5, slow=2):
    """What nputrace leaves: a summary of each rank. Returns its times, by rank and step."""
    base, expected = 1_700_000_000_000_000_000, {}
    for r in range(ranks):
        parts = {"compute_ns": 6_000_000 + 1_500_000 * (r == slow), "copy_ns": 200_000, "idle_ns": 300_000}
        parts["communication_ns"] = 10_000_000 - sum(parts.values())
        times = {"step_ns": 10_000_000, **parts, "all_communication_ns": parts["communication_ns"]}
        bounds = [{"step": i + 1, "start_ns": base + 10_000_000 * i, "end_ns": base + 10_000_000 * (i + 1),
                   "whole": True} for i in range(steps)]  # fmt: skip
        kernel = {"part": "compute", "calls": steps, "mean_ns": parts["compute_ns"], "p99_ns": 9_000_000,
                  "max_ns": 9_000_000, "total_ns": steps * parts["compute_ns"]}  # fmt: skip
        rank = {"format": "sonde-steps", "version": 1, "rank": r, "pid": 100 + r, "host": "node0",
                "request": "77", "job": "j", "parent": "p", "note": "", "world_size": ranks,
                "local_world_size": ranks, "ranks_chosen": False, "ended_by_request": False, "not_run": 0,
                "not_run_since_ns": None, "not_run_first": "", "lost": 0, "left_out": 0, "after_ns": 0,
                "steps": bounds, "kernels": [{"name": HOSTILE, **kernel}], "other_names": 0,
                "other_calls": 0, "other_ns": 0, "devices": [{"device": r, "steps": [times] * steps,
                "all": {k: v * steps for k, v in times.items()}}]}  # fmt: skip
        folder = top / f"node0_{100 + r}_2026111522000000{r}_sonde"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps(rank))
        expected[r] = parts
    return expected


def test_device_time(build, browser, tmp_path):
    """Every rank has its parts of every step, the slowest is marked, names of kernels are text."""
    expected = craft_trace(tmp_path / "trace")
    path = tmp_path / "r.html"
    run(build / "bin/sonde", "report", "-o", path, tmp_path / "trace")
    page = Page(browser, path)
    rows = page.js("p.activities[0].time.rows.map((r) => ({rank: r.rank, slowest: r.slowest, compute: [...r.compute],"
                   " communication: [...r.communication], copy: [...r.copy], idle: [...r.idle]}))")  # fmt: skip
    assert [r["rank"] for r in rows] == [0, 1, 2] and [r["slowest"] for r in rows] == [False, False, True]
    for r in rows:
        for part in ("compute", "communication", "copy", "idle"):
            assert r[part] == [expected[r["rank"]][part + "_ns"]] * 5
    summary = json.loads(run(build / "bin/sonde", "activity", "summary", "--json", tmp_path / "trace").stdout)
    assert summary["slowest"]["rank"] == 2
    assert "Rank 2 is the slowest" in page.js("document.querySelector('#device').innerText")
    assert page.js("p.activities[0].kernels.rows[0].total_ns") == 5 * (6_000_000 * 2 + 7_500_000)
    # a column of pixels of the second rank: compute lies at the bottom, as high as its share
    x, y = page.js("[p.activities[0].time.left + 8, p.activities[0].time.strip + 4 + 30 - 5]")
    pixel = page.js(f"[...p.activities[0].time.picture.canvas.getContext('2d').getImageData({x}, {y}, 1, 1).data]")
    assert pixel[:3] == [0x3F, 0x7F, 0xB5]
    page.check()
    for name, where in ((b"node0", "host"), (b"onerror", "kernel")):
        run(build / "bin/sonde", "report", "--redact", "-o", path, tmp_path / "trace")
        assert name not in carried(path)[0], where


FRAMES = ["process 41 rank 0", "thread 42 Main", "main (job/train.py:90)", "step (job/train.py:41)"]


@pytest.mark.parametrize("form", ("jsonl", "db"))
def test_files_of_activities(build, browser, tmp_path, form):
    """Files of a monitor, in both of its forms: the same totals as `sonde activity show`."""
    folder, sonde, base = tmp_path / "monitor", build / "bin/sonde", 1794723775000000000
    folder.mkdir()
    for rank in range(2):
        lines, at = [{"kind": "rank_device_map", "rank": rank, "device": [rank]}], base + 5000 * rank
        for i in range(300):
            took = 1000 + 37 * (i * i % 91) + 400 * rank
            where = {"deviceId": rank, "streamId": 2, "startNs": at, "endNs": at + took}
            lines.append(dict(kind="Kernel", name=HOSTILE if i % 3 else "MatMul", type="KERNEL_AICORE",
                              correlationId=i + 1, **where))  # fmt: skip
            if i % 20 == 0:
                lines.append(dict(kind="Communication", name="hcom_allReduce_", dataType="FP32", count=1,
                                  commName="g", algType="RING", correlationId=1000 + i,
                                  **where | {"streamId": 9, "endNs": at + took + 3000}))  # fmt: skip
                at += 3000
            at += took + i % 7 * 100
        path = folder / f"msmonitor_{100 + rank}_2026111522000000{rank}_{rank}.jsonl"
        path.write_text("".join(json.dumps(a, separators=(",", ":")) + "\n" for a in lines))
    if form == "db":
        run(sonde, "activity", "export", "--format=db", "-o", tmp_path / "db", folder)
        folder = tmp_path / "db"
    run(sonde, "report", "-o", tmp_path / "r.html", folder)
    said = json.loads(run(sonde, "activity", "show", "--json", "--top=100", folder).stdout)
    page = Page(browser, tmp_path / "r.html")
    assert page.js("p.activities.length") == 1
    parts = ("compute", "communication", "copy", "idle")
    expected = {(p["rank"], d["device"]): [d[f"{part}_ns"] for part in parts]
                for p in said["processes"] for d in p["devices"]}  # fmt: skip
    rows = page.js("p.activities[0].time.rows.map((r) => [r.rank, Number(r.device), r.sums, r.total])")
    assert len(expected) == 2 and {(r[0], r[1]): r[2] for r in rows} == expected
    assert all(r[3] == sum(r[2]) > 0 and r[2][0] > 0 and r[2][1] > 0 for r in rows)
    kernels = page.js("p.activities[0].kernels.rows.map((k) => [k.name, k.part, k.calls, k.total_ns, k.max_ns])")
    shown = {(k[0], *k[2:]) for k in kernels if k[1] == "compute"}
    printable = lambda name: name.replace("\x1b", "?").replace("\u202e", "?")
    assert {k["name"] for k in said["kernels"]} == {HOSTILE, "MatMul"}
    assert shown == {(printable(k["name"]), k["calls"], k["total_ns"], k["max_ns"]) for k in said["kernels"]}
    page.check()


def profiles(tmp):
    """The same stacks in every form: 30 in step, 10 in main itself."""
    text = tmp / "a.collapsed.txt"
    text.write_text(";".join(FRAMES) + " 30\n" + ";".join(FRAMES[:3]) + " 10\n")
    frames = [{"name": FRAMES[0]}, {"name": FRAMES[1]}, {"name": "main", "file": "/srv/job/train.py", "line": 90},
              {"name": "step", "file": "/srv/job/train.py", "line": 41}]  # fmt: skip
    sampled = {"type": "sampled", "name": "x", "unit": "none", "startValue": 0, "endValue": 40,
               "samples": [[0, 1, 2, 3], [0, 1, 2]], "weights": [30, 10]}  # fmt: skip
    speedscope = tmp / "b.speedscope.json"
    schema = "https://www.speedscope.app/file-format-schema.json"
    speedscope.write_text(json.dumps({"$schema": schema, "shared": {"frames": frames}, "profiles": [sampled]}))
    of = lambda ph, name, ts: {"ph": ph, "pid": 41, "tid": 42, "name": name, "ts": ts, "args": {}}
    named = {"ph": "M", "pid": 41, "tid": 42, "name": "thread_name", "args": {"name": "Main"}}
    chrome = tmp / "c.json.gz"
    events = [named, of("B", FRAMES[2], 0), of("B", FRAMES[3], 10), of("E", "", 40), of("E", "", 40)]
    chrome.write_bytes(gzip.compress(json.dumps(events).encode()))
    return text, speedscope, chrome


def test_profiles_of_stacks(build, browser, tmp_path):
    """Collapsed text, speedscope and a Chrome trace are the same flame graph; a thread can be chosen."""
    path = tmp_path / "r.html"
    run(build / "bin/sonde", "report", "-o", path, *profiles(tmp_path))
    page = Page(browser, path)
    scale = [1, 1, 1000]  # counts, counts, µs in ns
    for i in range(3):
        flame = f"p.profiles[{i}]"
        assert page.js(f"{flame}.net[0]") == 40 * scale[i]
        node = page.js(f"[...Array(p.tree.count).keys()].filter((n) => {flame}.own[n] === 30 * {scale[i]})")
        assert len(node) == 1 and page.js(f"p.tree.label({node[0]})") == FRAMES[3]
        stack = page.js(f"p.tree.stack({node[0]})")
        assert stack[1] == FRAMES[2] and stack[2].startswith("thread 42") and stack[3].startswith("process 41")
    page.pick("Thread", page.js("[...document.querySelectorAll('#stacks select option')].at(-1).value"))
    assert page.js("p.tree.label(p.profiles[0].zoomed)") == FRAMES[1]
    page.check()


def test_two_recordings(build, browser, made, tmp_path):
    """The differences are those of what `sonde mem owners` says of each."""
    other = record(build, tmp_path, "other", "--steps", 6, "--devices", 2)
    path = tmp_path / "r.html"
    run(build / "bin/sonde", "report", "-o", path, made[0], other)
    page = Page(browser, path)
    sums = [sum(d["bytes"] for d in ask(build, "owners", out)["devices"]) for out in (made[0], other)]
    assert page.js("p.compared.sums") == sums
    assert page.js("p.compared.flame.net[0]") == sums[1] - sums[0]
    rows = page.js("p.compared.rows.map((r) => [r.where, r.base, r.other])")
    (leak,) = [r for r in rows if r[0].startswith("leak_one_buffer")]
    assert leak[1] > 0 and leak[2] == 0
    sizes = page.js("p.compared.flame.total[0]")
    assert sizes >= abs(sums[1] - sums[0])
    page.check()


def test_what_is_refused(build, tmp_path):
    """No page is written of nothing, and what is wrong is said."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "noise").write_bytes(b"\x00\x01noise")
    (tmp_path / "words.txt").write_text("no counts here\n")
    (tmp_path / "half.json").write_text('{"shared": {"frames": [')
    for name, said in (("empty", "empty' contains nothing"), ("noise", "noise"), ("words.txt", "words.txt"),
                       ("half.json", "half.json"), ("absent", "absent")):  # fmt: skip
        out = tmp_path / "r.html"
        words = [build / "bin/sonde", "report", "-o", out, tmp_path / name]
        r = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60)
        assert r.returncode == 1 and said in r.stderr and not out.exists(), (name, r.stderr)


@pytest.mark.parametrize("redact, title", [([], "./python --quiet --steps 3 (job)"), (["--redact"], "A job")])
def test_the_title_is_the_job(build, tmp_path, redact, title):
    """The command, if it is known, and the directory; to a stranger, neither."""
    out, page = tmp_path / "job", tmp_path / "job.html"
    (tmp_path / "python").symlink_to(build / "sim/simtrain")
    words = [build / "bin/sonde", "record", "-q", "-o", out, "--", "./python", "--quiet", "--steps", "3"]
    subprocess.run(words, cwd=tmp_path, check=True, timeout=60, capture_output=True)
    run(build / "bin/sonde", "report", *redact, "-o", page, out)
    assert f"<title>{title} · sonde report</title>" in page.read_text()


def test_pictures_of_the_readme(build, tmp_path):
    """The script that draws them works on any report."""
    out = tmp_path / "job"
    sim = build / "sim/simtrain"
    run(build / "bin/sonde", "mem", "record", "-o", out, "--", sim, "--quiet", "--steps", "3")
    run(build / "bin/sonde", "report", "-o", tmp_path / "job.html", out)
    script = pathlib.Path(__file__).resolve().parents[2] / "tools/draw_pictures.py"
    run(script, tmp_path / "job.html", tmp_path / "pictures")
    light, dark = (tmp_path / f"pictures/report-{s}.png" for s in ("light", "dark"))
    assert light.stat().st_size > 10000 and light.read_bytes() != dark.read_bytes()
