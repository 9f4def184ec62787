# SPDX-License-Identifier: MulanPSL-2.0
"""The status page in a real browser: what it shows, what its buttons do, and that texts of
processes stay texts."""

import http.server
import json
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.request

import fabric_client
import pytest
from browser import Browser
from daemon import Daemon
from waiting import pause, wait_until

WEB = pathlib.Path(__file__).resolve().parents[2] / "src" / "web"
CLIENT = pathlib.Path(__file__).resolve().parent / "fabric_client.py"
EVIL = "<img src=x onerror=document.title='evil'><b id=evil>"


@pytest.fixture
def daemon(build, tmp_path):
    env = {"LD_LIBRARY_PATH": str(build / "sim")}
    flags = ["--kernel-monitor-reporting-interval-s", "1", "--dcgm-reporting-interval-s", "1"]
    with Daemon(build, tmp_path, *flags, ipc=True, env=env) as d:
        yield d


def client(d):
    """A process that polls, whose command line has markup."""
    words = [sys.executable, CLIENT, d.ipc_dir / "dynolog", d.ipc_dir, "60", "0", EVIL]
    p = d.popen(*words, stdout=subprocess.PIPE, text=True)
    assert json.loads(p.stdout.readline())["registered"] == 1
    return p


def text(selector):
    return f"document.querySelector({json.dumps(selector)}).innerText"


def check_scales(b, daemon):
    """Counts are rates of the time that they were counted in; what is of one kind has one scale;
    numbers are in the order of numbers."""
    samples = wait_until(lambda: [s for s in daemon.call({"fn": "getMetrics"})["samples"]
                                  if s["source"] == "kernel" and s["interval_s"]])  # fmt: skip
    assert 0.2 < samples[0]["interval_s"] < 30
    metrics = {"cpu_util": 1, "rx_bytes.eth0": 6000, "tx_bytes.eth0": 120, "rx_bytes.lo": 9999999,
               "disk_read_bytes.sda": 60 << 20, "disk_write_bytes.sda": 0}  # fmt: skip
    first = {"time_ns": 1, "interval_s": 60, "metrics": metrics}
    tiles = "[...document.querySelectorAll('#machine .tile')]"
    texts = b.js(f"showMachine({json.dumps(first)}); {tiles}.map((t) => t.innerText)")
    assert [t.split("\n")[-1] for t in texts[1:]] == ["100 B/s", "2 B/s", "1 MiB/s", "0 B/s"]
    scales = b.js(f"{tiles}.slice(1).map((t) => t.dataset.scale)")
    assert scales[0] == scales[1] != scales[2] == scales[3]
    texts = b.js(f"showMachine({json.dumps({**first, 'interval_s': None})}); "
                 f"{tiles}.map((t) => t.innerText)")  # fmt: skip
    assert [t.split("\n")[-1] for t in texts[1:]] == ["–"] * 4
    of = lambda kind, device, ns: {"source": "data", "time_ns": 1, "records": 1, "metrics": {
        "kind": kind, "deviceId": device, "duration": ns}}  # fmt: skip
    data = [of("Kernel", "10", 500), of("API", "host", 7), of("Kernel", "2", 9000)]
    tiles = "[...document.querySelectorAll('#activity .tile')]"
    texts = b.js(f"showActivity({json.dumps(data)}); {tiles}.map((t) => t.innerText)")
    assert [re.findall(r"host|device \d+", t)[0] for t in texts] == ["host", "device 2", "device 10"]
    assert b.js(f"{tiles}.map((t) => Number(t.dataset.scale))") == [7, 9000, 9000]
    row = {"job_id": 0, "state": "Idle", "clients": [], "last_seen_s": 0, "current_step": -1,
           "step_age_s": None}
    ranks = [{**row, "pid": 100 - r, "rank": r} for r in (10, 2, 0)] + [{**row, "pid": 1}]
    shown = f"showProcesses({{total: 4, processes: {json.dumps(ranks)}}})"
    cells = "[...document.querySelectorAll('#processes tr')].map((t) => t.cells[1].textContent)"
    assert b.js(f"{shown}; {cells}") == ["0", "2", "10", "–"]
    b.js("refresh(); 1")
    b.until("document.querySelectorAll('#processes tr').length === 1")


def test_the_page(daemon, tmp_path):
    p = client(daemon)
    try:
        with Browser(tmp_path) as b:
            b.ask("Page.navigate", url=f"http://localhost:{daemon.http_port}/")
            b.until("document.querySelectorAll('#processes tr').length === 1")
            assert str(p.pid) in b.js(text("#processes"))
            # a list does not wait long for the commands
            command = "document.querySelector('#processes .command').textContent"
            b.until(f"{command}.includes({json.dumps(EVIL)})")
            assert b.js("document.getElementById('evil')") is None
            b.until("document.querySelectorAll('#machine .tile').length >= 5")
            b.until("document.querySelectorAll('#machine svg').length >= 5")
            b.until("document.querySelectorAll('#devices .tile').length >= 1")
            record = {"kind": EVIL, "deviceId": 0, "duration": 5, "timestamp": 1, "domain": EVIL}
            with fabric_client.Client(daemon.ipc_dir / "dynolog", bind=daemon.ipc_dir) as c:
                c.data(record)
            b.until("document.querySelectorAll('#activity .tile').length === 1")
            assert EVIL in b.js("document.getElementById('activity').textContent")
            assert b.js("document.getElementById('evil')") is None
            assert "sonde" in b.js("document.title") and "evil" not in b.js("document.title")

            check_scales(b, daemon)
            # an order for the one process, by its button
            b.js("document.getElementById('t-kind').value = 'gpu'")
            b.js("document.getElementById('t-kind').dispatchEvent(new Event('change'))")
            b.js("document.querySelector('#processes input').click()")
            assert "selected" in b.js(text("#target"))
            b.js("document.querySelector('#trace-form button').click()")
            said = b.until("!document.getElementById('result').hidden && " + text("#result"))
            assert "1 process will be traced" in said
            got = json.loads(p.stdout.readline())
            assert "ACTIVITIES_LOG_FILE=/tmp/trace.json" in json.dumps(got)
            assert "ACTIVITIES_DURATION_MSECS=500" in json.dumps(got)

            # one that nobody takes, with its reason
            b.js("document.querySelector('#monitor-form button').click()")
            said = b.until(f"{text('#result')}.includes('Nothing') && {text('#result')}")
            assert len(said.splitlines()) > 1

            p.kill()
            b.until("document.querySelectorAll('#processes tr').length === 0")
            assert b.js("!document.getElementById('empty').hidden")
            shot = b.ask("Page.captureScreenshot", format="png")
            assert len(shot["data"]) > 10000

            urls = [e["params"]["request"]["url"] for e in b.events
                    if e.get("method") == "Network.requestWillBeSent"]  # fmt: skip
            own = (f"http://localhost:{daemon.http_port}/", "data:")
            assert urls and all(u.startswith(own) for u in urls), urls
            wrong = [e for e in b.events if e.get("method") == "Runtime.exceptionThrown"
                     or (e.get("method") == "Log.entryAdded" and
                         e["params"]["entry"]["level"] == "error")]  # fmt: skip
            assert not wrong

            daemon.stop()
            b.until("!document.getElementById('trouble').hidden")
    finally:
        p.kill()
        p.wait()


FOREIGN = """
const url = "http://HOST:PORT/api/v1/setKinetOnDemandRequest";
const order = JSON.stringify({config: "ACTIVITIES_LOG_FILE=/tmp/evil", pids: [], job_id: 0});
const post = (type, mode) => fetch(url, {method: "POST", mode, body: order,
	headers: {"Content-Type": type}}).then((r) => r.type + r.status, () => "blocked");
const read = fetch("http://HOST:PORT/api/v1/listProcesses").then((r) => r.text(), () => "blocked");
Promise.all([post("text/plain", "no-cors"), post("text/plain", "cors"),
	post("application/json", "cors"), read]).then((all) => window.answers = all);
const form = Object.assign(document.createElement("form"), {method: "post", action: url,
	enctype: "text/plain", target: "frame"});
form.append(Object.assign(document.createElement("input"), {name: order, value: ""}));
document.body.append(Object.assign(document.createElement("iframe"), {name: "frame"}), form);
form.submit();
"""


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_page_of_somebody_else(daemon, tmp_path, host):
    """It can make the browser send requests to our port, but they order and tell nothing."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><body>free games</body>")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    p = client(daemon)
    try:
        with Browser(tmp_path) as b:
            b.ask("Page.navigate", url=f"http://localhost:{server.server_address[1]}/")
            b.until("document.body && document.body.innerText === 'free games'")
            b.js(FOREIGN.replace("HOST", host).replace("PORT", str(daemon.http_port)) + "; 1")
            answers = b.until("window.answers")
            assert answers[1:] == ["blocked"] * 3 and answers[0] in ("opaque0", "blocked")
            pause(0.5, "a request that got through would be there")
            text = daemon.call({"fn": "listProcesses"})
            assert [x["state"] for x in text["processes"]] != ["Pending"]
        p.kill()
        assert p.stdout.read() == ""  # it was given nothing
    finally:
        p.kill()
        p.wait()
        server.shutdown()
        server.server_close()


def test_the_page_needs_nothing_else(daemon):
    """No name of another machine, no script or style that the policy would refuse, no markup made
    of texts; every field has its label; small."""
    size = 0
    scripts = ("tools.js", "charts.js", "job.js", "profiler_request.js", "status.js")
    for name in ("status.html", "status.css", *scripts):
        source = (WEB / name).read_text()
        path = "" if name == "status.html" else name
        with urllib.request.urlopen(f"http://localhost:{daemon.http_port}/{path}") as r:
            assert r.read().decode() == source
        size += len(source)
        urls = set(re.findall(r"https?://[^\s\"']*", source)) - {"http://www.w3.org/2000/svg"}
        assert not urls and "innerHTML" not in source and "eval(" not in source
        assert "document.write" not in source and "@import" not in source
        assert " style=" not in source
    assert size < 75000
    html = (WEB / "status.html").read_text()
    assert not re.search(r"\son\w+=|<script>|<style>", html)
    for field in re.findall(r"<(?:input|select)[^>]*>", html):
        before = html[: html.index(field)]
        assert "aria-label" in field or before.rfind("<label") > before.rfind("</label")
