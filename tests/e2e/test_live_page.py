# SPDX-License-Identifier: MulanPSL-2.0
"""The page of the daemon over time, in a real browser: charts with the right numbers, ranks that are slow or
do not go on, the memory of a recorded job, snapshots; keyboard, dark, phone; hostile names; nothing that
axe-core finds serious."""

import contextlib
import json
import pathlib
import subprocess
import sys

import axe
import pytest
from browser import Browser
from daemon import Daemon
from waiting import wait_until

HERE = pathlib.Path(__file__).resolve().parent
EVIL = "<img src=x onerror=document.title='evil'><b id=evil>\x1b]0;t\x07<script>"
# Registers, is recorded, and waits in a function of a file with markup in its name.
JOB = f"""
import os, sys
sys.path.insert(0, {str(HERE)!r})
import fabric_client as fc
kept = []
exec(compile("def hold():\\n    kept.append(bytearray(4 << 20))\\ndef wait_here():\\n    return sys.stdin.readline()\\n",
             "/tmp/" + {EVIL!r} + ".py", "exec"))
with fc.Client(sys.argv[1]) as c:
    c.context()
    c.request([os.getpid()])
    hold()
    print(os.getpid(), flush=True)
    while wait_here():
        hold()
        c.request([os.getpid()])
        print("held", flush=True)
"""


@pytest.fixture(scope="module")
def page(build, tmp_path_factory):
    """One daemon, one job, one browser for all."""
    tmp = tmp_path_factory.mktemp("live")
    flags = ["--kernel-monitor-reporting-interval-s", "1", "--dcgm-reporting-interval-s", "1"]
    with Daemon(build, tmp, *flags, ipc=True, env={"LD_LIBRARY_PATH": str(build / "sim")}) as d:
        (tmp / "job.py").write_text(JOB)
        words = [build / "bin/sonde", "mem", "record", "--device=cpu", "--call-stack=python:4", "--quiet"]
        words += ["-o", tmp / "out", "--", sys.executable, "-S", tmp / "job.py", d.ipc_dir / "dynolog"]
        job = d.popen(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert int(job.stdout.readline()) == job.pid
            with Browser(tmp) as b:
                b.ask("Page.navigate", url=f"http://localhost:{d.http_port}/")
                b.until("document.querySelectorAll('#processes tr').length === 1")
                b.daemon, b.job = d, job
                yield b
                check_harmless(b)
        finally:
            job.kill()
            job.wait()


def check_harmless(b):
    assert b.js("document.getElementById('evil')") is None and "evil" not in b.js("document.title")
    own = (f"http://localhost:{b.daemon.http_port}/", "data:")
    urls = [e["params"]["request"]["url"] for e in b.events if e.get("method") == "Network.requestWillBeSent"]
    assert urls and all(u.startswith(own) for u in urls), urls
    wrong = [e for e in b.events if e.get("method") == "Runtime.exceptionThrown"
             or (e.get("method") == "Log.entryAdded" and e["params"]["entry"]["level"] == "error")]  # fmt: skip
    assert not wrong, wrong


def look(b, width, dark=False):
    b.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
    scheme = "dark" if dark else "light"
    b.ask("Emulation.setEmulatedMedia", features=[
        {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}])


def click(b, selector):
    b.js(f"document.querySelector({json.dumps(selector)}).click()")


@contextlib.contextmanager
def no_rounds(b):
    """The page asks the daemon for nothing meanwhile; what it had asked for has come before."""
    b.until("!busy && (busy = true)")
    yield
    b.js("busy = false")


# An hour of two devices and a rank: the newest part is number 1000; what is known is every sixth part.
HISTORY = """
(() => {
	const parts = 360, values = (f) => Array.from({length: parts}, (_, i) => i % 6 ? null : f(i));
	hist.series.clear();
	Object.assign(hist, {newest: 0, now: 0});
	keepHistory({bin_ns: 1e10, first_ns: 641e10, now_ns: 1000.5e10, bytes: 81920,
		series: [{source: "npu", device: 0, name: "utilization", values: values((i) => 50)},
			{source: "npu", device: 10, name: "utilization", values: values((i) => i / 3.6)},
			{source: "kernel", device: null, name: "memory_bytes", values: values((i) => 2 ** 30)},
			{source: "kernel", device: null, name: "memory_total_bytes", values: values((i) => 2 ** 32)}],
		processes: [{pid: 5, job_id: 0, rank: 3, step_ns: values((i) => 2e7), busy: values((i) => 0.25)}]});
	chosen = false;
	drawCharts();
	return [...made.values()].filter((c) => c.figure.isConnected).map((c) => ({kind: c.model.kind, high: c.model.high,
		bins: c.model.bins, lines: c.model.lines.map((l) => [l.name, l.values.filter((v) => v !== null).length])}));
})()
"""


def check_charts(page):
    charts = {c["kind"]: c for c in page.js(HISTORY)}
    assert charts["utilization"]["lines"] == [["NPU 0", 60], ["NPU 10", 60]] and charts["utilization"]["high"] == 100
    assert charts["host memory_bytes"]["high"] == 2**32 and charts["step"]["lines"] == [["rank 3", 60]]
    assert {c["bins"] for c in charts.values()} == {360}  # an hour is there, so an hour is shown
    # the picture has them: one line for each device, where its value is
    paths = page.js("[...made.get('utilization').svg.querySelectorAll('path')].map((p) => p.getAttribute('d'))")
    ys = [float(p.split()[-1]) for p in paths]
    assert len(paths) == 2 and all(p.count("M") == 1 for p in paths)  # small gaps are bridged
    assert abs(ys[0] - (148 - 142 * 0.5)) < 0.2 and abs(ys[1] - (148 - 142 * 354 / 360)) < 0.2
    text = page.js("made.get('utilization').legend.innerText")
    assert "50 %" in text and "98 %" in text
    # arrow keys read values
    page.js("made.get('utilization').figure.focus()")
    for key in ("End", "Home"):
        page.ask("Input.dispatchKeyEvent", type="keyDown", key=key)
    said = page.js("made.get('utilization').figure.innerText")
    assert "60 min ago" in said and "0.0 %" in said
    # charts that come and go around it take neither the focus nor the value that is read
    page.js("hist.series.delete('busy|0|5'); drawCharts()")
    page.js("keepSeries('npu|0|power_w', {kind: 'power_w', name: 'NPU 0'}, hist.newest, [300]); drawCharts()")
    assert page.js("!made.get('busy').figure.isConnected && made.get('power_w').figure.isConnected")
    assert page.js("document.activeElement === made.get('utilization').figure")
    assert "60 min ago" in page.js("made.get('utilization').figure.innerText")
    page.ask("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    # a range of its own, by a button
    click(page, ".range [data-bins='30']")
    assert page.js("made.get('step').model.bins") == 30
    assert page.js("document.querySelector('.range [aria-pressed=true]').textContent") == "5 min"
    # what comes next is added, what nobody told about is a gap, who has gone goes
    page.js("keepHistory({bin_ns: 1e10, first_ns: 1003e10, now_ns: 1003.5e10, bytes: 1, processes: [], series: "
            "[{source: 'npu', device: 0, name: 'utilization', values: [75]}]}); drawCharts()")  # fmt: skip
    assert page.js("newest([...hist.series.values()][0], 5)") == [None, None, None, None, 75]
    assert page.js("hist.series.size") == 1


def test_charts_have_the_right_numbers(page):
    look(page, 1400)
    with no_rounds(page):
        check_charts(page)
    page.js("hist.series.clear(); Object.assign(hist, {newest: 0, now: 0}); chosen = false; rounds = 0; refresh(); 1")
    # and the daemon's own: of the host and of simulated NPUs
    page.until("document.querySelectorAll('#charts .chart').length >= 5")
    got = page.daemon.call({"fn": "getHistory"})
    last = [v for s in got["series"] if s["name"] == "memory_total_bytes" and s["source"] == "kernel"
            for v in s["values"] if v][-1]  # fmt: skip
    assert page.js("made.get('host memory_bytes').model.high") == pytest.approx(last, rel=1e-6)


RANKS = """
(() => {
	const p = (pid, rank, age) => ({pid, rank, device: rank, job_id: 0, state: "Monitoring", clients: ["sonde"],
		current_step: 7, last_seen_s: 1, command: EVIL, user: null, step_age_s: age});
	const t = (pid) => ({pid, rank: pid, late: false, steps: {count: 9, mean_ns: 2e8}, interval_s: 1, rows: [],
		others: {total_ns: 0}, devices: [{busy_ns: 5e8, kernel_ns: 3e8, comm_ns: 2e8, copy_ns: 0}]});
	latestTop = {processes: [t(0), t(1), t(2)], slowest: {rank: 1, pid: 1}, regressions: [], waits: []};
	showProcesses({total: 3, processes: [p(0, 0, 1), p(1, 1, 2), p(2, 2, 95)]});
	return [...document.querySelectorAll("#processes tr")].map((r) => [...r.cells].map((c) => c.textContent));
})()
"""


def test_ranks_that_are_slow_or_do_not_go_on(page):
    rows = page.js(RANKS.replace("EVIL", json.dumps(EVIL)))
    assert [(r[1], r[7], r[8], r[9]) for r in rows] == [
        ("0", "200 ms", "50 %", ""), ("1", "200 ms", "50 %", "slowest"), ("2", "200 ms", "50 %", "no step for 1 min"),
    ]  # fmt: skip
    assert EVIL in rows[0][10]
    words = page.js("document.getElementById('job-words').innerText")
    assert "1 of 3 has ended no step for 1 min or longer: rank 2." in words
    widths = page.js("[...document.querySelectorAll('#processes tr:first-child .parts span')].map((s) => s.style.width)")
    assert widths == ["30%", "20%", "0%"]
    page.js("refresh(); 1")
    page.until("document.querySelectorAll('#processes tr').length === 1")


def test_memory_grows_and_ends(page):
    look(page, 1400)
    page.until("document.querySelector('#mem-pid option') !== null")
    click(page, "#mem-start")
    page.until("document.querySelector('#memory table') !== null", 60)
    held = ("[...document.querySelectorAll('#memory tbody tr')].filter((r) => "
            "r.textContent.includes('hold (')).map((r) => r.cells[0].textContent)[0]")  # fmt: skip
    page.until(f"({held}) === '4 MiB'", 60)
    name = page.js("[...document.querySelectorAll('#memory td.command')].map((c) => c.textContent).find((t) => t.includes('hold ('))")
    assert "<img src=x onerror=" in name and "\x1b" not in name
    page.job.stdin.write("\n" * 2)
    page.job.stdin.flush()
    page.until(f"({held}) === '12 MiB'", 60)
    assert "now." in page.js("document.querySelector('#memory').innerText")
    page.js("document.getElementById('mem-by').value = 'owner'; document.getElementById('mem-by').dispatchEvent(new Event('change'))")
    page.until("[...document.querySelectorAll('#memory tbody tr')].some((r) => r.cells[5].textContent === 'HOST')", 60)
    click(page, "#mem-stop")
    assert page.js("document.getElementById('mem-stop').hidden")


def test_a_snapshot_of_the_stacks(page):
    click(page, "#snapshot-form button")
    page.until("document.querySelector('#snapshot details') !== null", 60)
    text = page.js("document.querySelector('#snapshot').textContent")
    assert "wait_here" in text and "<img src=x" in text


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_and_is_accessible(page, width, dark, tmp_path):
    look(page, width, dark)
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    back = page.js("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, back[4:-1].split(","))) < 200) == dark
    assert axe.serious(page) == []


def test_a_trace_shows_its_progress(page):
    """What was written is listed by its path, and how to read it; what failed, why."""
    with no_rounds(page):
        check_followed(page)


def check_followed(page):
    page.js("followed = [{id: '1', n: 3, told: 3, written: ['/tmp/x/a.json', '/tmp/x/<b>.json'], bad: ['Process 7: no.'],"
            " text: 'Trace', until: 0}]; showFollowed()")  # fmt: skip
    text = page.js("document.getElementById('followed').textContent")
    assert "2 of 3 written, 1 failed" in text and "/tmp/x/<b>.json" in text and "Process 7: no." in text
    assert "sonde activity summary /tmp/x" in text
    assert page.js("document.querySelector('#followed progress').value") == 3
    page.js("followed = []; showFollowed()")
    wait_until(lambda: page.js("document.getElementById('followed').hidden"))
