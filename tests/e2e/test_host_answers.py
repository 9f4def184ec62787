# SPDX-License-Identifier: MulanPSL-2.0
"""Answers about host memory: several processes, limits, comparisons, what the blocks account for."""

import json
import sys

MIB = 1 << 20
HOST = ["--device=cpu", "--format=csv"]

# Two workers hold memory at the same time, and the parent waits until both do.
WORKERS = """
import os, sys
pids, ready, go = [], os.pipe(), os.pipe()
for i in range(2):
    pid = os.fork()
    if not pid:
        blocks = [bytearray(b"x") * (1 << 20) for _ in range(20)]
        os.write(ready[1], b"r"); os.read(go[0], 1)
        os._exit(0)
    pids.append(pid)
for _ in pids: os.read(ready[0], 1)
for _ in pids: os.write(go[1], b"g")
for pid in pids: os.waitpid(pid, 0)
print(*pids)
"""
GROW = """
import sys
kept = []
def grow(n):
    for _ in range(n): kept.append(bytearray(1 << 20))
grow(int(sys.argv[1]))
"""


def ask(h, question, *words, path=None):
    r = h.sonde("mem", question, "--json", *words, path or h.recording)
    return json.loads(r.stdout)


def said(h, question, *words, path=None):
    return " ".join(h.sonde("mem", question, *words, path or h.recording).stdout.split())


def run_python(h, code, *words, opts=()):
    r = h.run(sys.executable, "-c", code, *words, opts=[*HOST, *opts])
    h.session.wait_finished()
    return r


def test_totals_of_several_processes_are_exact(hurt):
    pids = [int(x) for x in run_python(hurt, WORKERS).stdout.split()]
    (device,) = ask(hurt, "show")["devices"]
    assert not device["peak_is_lower_bound"] and device["peak_bytes"] >= 40 * MIB
    peak = ask(hurt, "peak")
    (together,) = peak["together"]
    assert together["peak_bytes"] == device["peak_bytes"]
    assert {d["pid"] for d in peak["devices"] if d["peak_bytes"] > 20 * MIB} == set(pids)
    assert "no less than" not in said(hurt, "show")
    for limit, code in ((60 * MIB, 0), (20 * MIB, 3)):
        r = hurt.sonde("mem", "peak", f"--limit={limit}", "--fail-on=limit", hurt.recording)
        assert r.returncode == code
        assert ("above the limit" in r.stdout.replace("\n", " ")) == (code == 3)


def test_compare_by_call_site(hurts):
    a, b = hurts("a"), hurts("b")
    for h, n in ((a, "3"), (b, "9")):
        run_python(h, GROW, n, opts=["--call-stack=python:10"])
    out = ["-o", a.tmp / "result"]
    c = json.loads(a.sonde("mem", "compare", "--json", *out, a.recording, b.recording).stdout)
    assert c["what"] == "site" and not c["identical"]
    site = c["sites"][0]
    assert site["name"].startswith("grow (<string>:5)") and site["device"] == "cpu"
    assert site["allocations"] == {"base": 3, "compare": 9}
    assert site["held_at_most"]["diff_bytes"] // MIB == 6
    assert c["devices"][0]["diff_bytes"] // MIB in (5, 6)
    with open(c["csv"]) as f:
        assert any(line.startswith("CALL_SITE,grow (<string>:5)") for line in f)
    words = [*out, "--level=site", "--fail-on=diff"]
    same = a.sonde("mem", "compare", *words, a.recording, a.recording)
    assert same.returncode == 0 and "held and left the same" in same.stdout.replace("\n", " ")
