# SPDX-License-Identifier: MulanPSL-2.0
"""Host memory (--device=npu,cpu): the malloc family keeps its promises, whoever provides it."""

import collections
import functools
import json
import subprocess
import sys

import pytest

from capabilities import lacks, needs
from pythons import is_free_threaded, one_per_minor, pythons


HOST = ["--device=npu,cpu"]


def recorded_like_plain(h, *words, env=None, opts=HOST, **kw):
    plain = h.plain(*words, env=env, **kw)
    r = h.run(*words, opts=opts, env=env, **kw)
    assert (r.returncode, r.stdout, r.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    h.session.wait_finished()
    assert h.lost == 0
    return r


@pytest.mark.parametrize("form", ["csv", "db"])
def test_promises_of_malloc(hurt, form):
    """Every row is checked by dumpcheck: pairs, sums, order."""
    r = recorded_like_plain(hurt, hurt.target("heap"), opts=[*HOST, f"--format={form}"])
    assert r.stdout == b"kept\n"
    (only,) = hurt.processes()
    rows = [x for x in only.rows if x.event in ("MALLOC", "FREE")]
    assert len(rows) > 160000 and {x.device for x in rows} == {"cpu"}
    left = [x for x in rows if "shadow" in x.attr]
    assert len(left) < 100, "what the C library itself keeps, and nothing else"


@pytest.mark.parametrize("name", ["jemalloc", "tcmalloc"])
def test_another_allocator(hurt, name):
    env = {"LD_PRELOAD": needs(name)}
    r = recorded_like_plain(hurt, hurt.target("heap"), env=env)
    assert r.stdout == b"kept\n"
    (only,) = hurt.processes()
    assert sum(1 for x in only.rows if x.event == "MALLOC") > 80000


def test_a_program_with_its_own_malloc(hurt):
    r = recorded_like_plain(hurt, hurt.target("heap_own"))
    assert r.stdout == b"my own\n"


def test_with_call_stacks(hurt):
    r = recorded_like_plain(hurt, hurt.target("heap"), opts=[*HOST, "--call-stack=c:10"])
    assert r.stdout == b"kept\n"


def test_python(hurt):
    code = (
        "import json, subprocess, threading\n"
        "ts = [threading.Thread(target=lambda: json.dumps(list(range(9999)))) for _ in range(8)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\n"
        "print(subprocess.run(['sh', '-c', 'echo child; exit 3'], capture_output=True))\n"
        "raise SystemExit(4)\n"
    )
    r = recorded_like_plain(hurt, sys.executable, "-c", code)
    assert r.returncode == 4 and b"child" in r.stdout
    assert len(hurt.processes()) >= 2


def test_bash(hurt):
    script = (
        "for i in 1 2 3 4 5; do (echo $i; exec cat /dev/null) & done; wait\n"
        "seq 200 | sort -rn | while read x; do echo $x; done | head -3\n"
        "x=$(date +%Y | wc -c); echo $x; trap 'echo bye' EXIT; exit 9\n"
    )
    plain = hurt.plain("bash", "-c", script)
    r = hurt.run("bash", "-c", script, opts=HOST)
    assert (r.returncode, r.stderr) == (plain.returncode, plain.stderr) == (9, b"")
    assert sorted(r.stdout.split()) == sorted(plain.stdout.split())
    hurt.session.wait_finished()
    assert hurt.lost == 0


def test_git(hurt):
    needs("git")
    repo = hurt.tmp / "repo"
    env = {f"GIT_{w}_{k}": v for w in ("AUTHOR", "COMMITTER") for k, v in
           (("NAME", "a"), ("EMAIL", "a@b"), ("DATE", "2026-01-01T00:00:00Z"))}
    for words in (
        ["git", "init", "-q", repo],
        ["git", "-C", repo, "commit", "-q", "--allow-empty", "-m", "first"],
    ):
        r = hurt.run(*words, opts=HOST, env=env)
        assert (r.returncode, r.stdout, r.stderr) == (0, b"", b"")
    plain = hurt.plain("git", "-C", repo, "log", "--stat", env=env)
    r = hurt.run("git", "-C", repo, "log", "--stat", opts=HOST, env=env)
    assert (r.returncode, r.stdout, r.stderr) == (0, plain.stdout, plain.stderr)
    assert subprocess.run(["git", "-C", repo, "fsck"], capture_output=True).returncode == 0


# --- mappings ---

KIB, MIB = 1024, 1024 * 1024


def left(rows):
    """Bytes that were left, by how they were mapped; None: allocated."""
    sums = collections.Counter()
    for x in rows:
        if x.event == "FREE" and "shadow" in x.attr:
            sums[x.attr.get("alloc_type")] += int(x.attr["size"])
    return sums


def test_mappings(hurt):
    """Split, grown, replaced, reserved, shared and of files: what is left is what there is. That
    every `total` is the sum of what is mapped and allocated, dumpcheck looks at."""
    r = recorded_like_plain(hurt, hurt.target("mappings"), opts=[*HOST, "--call-stack=c:5"])
    (only,) = hurt.processes()
    sums = left(only.rows)
    assert sums["mmap"] == MIB - 64 * KIB + 3 * MIB + 128 * KIB + 64 * KIB
    assert sums["shared"] == (256 + 128 + 64) * KIB
    assert sums["file"] == -(-int(r.stdout) // 4096) * 4096
    mapped = [x for x in only.rows if x.event == "MALLOC" and "alloc_type" in x.attr]
    callers = " ".join(x.c_stack for x in mapped)
    assert all(f in callers for f in ("map_private", "map_reserved", "map_shared", "map_file"))
    show = hurt.show()
    (process,) = show["processes"]
    assert process["mapped_files"]["left_bytes"] == sums["file"]
    (pool,) = process["pools"]
    assert pool["alive_at_end"]["bytes"] == sums[None] + sums["mmap"] + sums["shared"]


# Objects of 100 to 300 bytes: pymalloc's alone, of its arenas. STEPS is a word before it.
LEAKY = """
import sys
step = lambda: None
if len(sys.argv) > 1:
    import msmemscope
    step = msmemscope.step
kept = []
def lose():
    for i in range(14000):
        kept.append({i: i} if i % 4 == 0 else b"%099d" % i)
for _ in range(6):
    lose()
    step()
"""


def test_small_objects_of_python(hurt):
    """pymalloc's arenas are mapped: they belong to the line that made it grow."""
    env = {"PYTHONPATH": str(hurt.build / "python")}
    script = hurt.tmp / "leaky.py"
    script.write_text(LEAKY)
    r = hurt.run(sys.executable, script, "steps", opts=["--device=cpu", "--call-stack=python:10"], env=env)
    assert r.returncode == 0
    answer = hurt.ask("leaks")
    (lost,) = answer["leaks"]
    assert lost["where"] == "lose (leaky.py:10)" and lost["pool"] == "HOST"
    assert 1 << 20 <= lost["bytes_per_step"] <= 6 << 20
    assert lost["last_step"] == 5, "the list that holds them is reallocated, they are not"


KEEPS = """
def keep():
    return [bytes(100 + i % 9) for i in range(4000)]
kept = keep()
again = [bytearray(b * 5) for b in kept]  # more than pymalloc serves: malloc's
del again
"""


@pytest.mark.parametrize("python", one_per_minor())
def test_objects_of_every_python(hurt, python):
    """--python-objects: each block at its line, cut from arenas that count once."""
    script = hurt.tmp / "keeps.py"
    script.write_text(KEEPS)
    opts = ["--python-objects", "--call-stack=python:3", "--format=none"]
    r = hurt.run(python.path, "-I", "-S", script, opts=opts)
    assert (r.returncode, r.stdout, r.stderr) == (0, b"", b"")
    show = hurt.show()
    (process,) = show["processes"]
    pools = {x["pool"]: x for x in process["pools"]}
    free_threaded = is_free_threaded(python)
    mine = pools["HOST" if free_threaded else "PYTHON"]["alive_at_end"]["places"]
    (keep,) = [x for x in mine if "keep" in (x["where"] or "")]
    assert keep["where"].endswith("(keeps.py:3)") and 4000 <= keep["blocks"] < 4020
    assert 547990 <= keep["bytes"] < 4000 * (176 if free_threaded else 160)  # longer heads
    assert show["devices"][0]["peak_bytes"] == pools["HOST"]["peak_bytes"]
    assert show["notes"] == []
    if not free_threaded:  # objects lie in arenas
        assert pools["PYTHON"]["peak_bytes"] < pools["HOST"]["peak_bytes"]


ASKS = """
import msmemscope
msmemscope.config(python_objects="true", call_stack="python:3", output_path=OUT)
msmemscope.start()
kept = [bytes(100) for _ in range(4000)]
msmemscope.stop()
"""


@pytest.mark.parametrize("how", ["alone", "mimalloc"])
def test_objects_whose_arenas_do_not_count(hurt, how):
    """Without the preload libraries nobody has seen them mapped; mimalloc only reserves. Then each
    object is host memory itself. And the program's end counts, though nothing is traced any more."""
    python = [p for p in pythons() if p.minor == 13][0]
    env = {"PYTHONPATH": str(hurt.build / "python")}
    if how == "mimalloc":
        env["PYTHONMALLOC"] = "mimalloc"
        if hurt.plain(python.path, "-c", "", env=env).returncode:
            lacks("python-mimalloc", "this interpreter was built without it")
    run = hurt.plain if how == "alone" else functools.partial(hurt.run, opts=["--device=cpu", "--format=none"])
    r = run(python.path, "-c", ASKS.replace("OUT", repr(str(hurt.out))), env=env)
    assert r.returncode == 0, r.stderr
    hurt.session.wait_finished()
    (process,) = hurt.show()["processes"]
    (pool,) = process["pools"]
    (kept,) = [x for x in pool["alive_at_end"]["places"] if x["where"] == "<module> (<string>:5)"]
    assert pool["pool"] == "HOST" and 4000 <= kept["blocks"] < 4020
    assert pool["peak_bytes"] < 16 * MIB


# --- the end of a program ---


@pytest.mark.parametrize("how", ["return", "exit", "quick", "kill"])
def test_what_is_left_is_the_state_before_teardown(hurt, how):
    recorded_like_plain(hurt, hurt.target("ends"), how, opts=["--device=cpu", "--call-stack=c:10"])
    (process,) = hurt.show()["processes"]
    (pool,) = process["pools"]
    held = [x for x in pool["alive_at_end"]["places"] if (x["where"] or "").startswith("hold ")]
    assert sum(x["bytes"] for x in held) == 5 * MIB
    assert pool["teardown_frees"] == {"return": 2, "exit": 2}.get(how, 0)
    assert 5 * MIB <= pool["peak_bytes"] < 6 * MIB
    (rest,) = hurt.ask("leaks")["processes"]
    assert rest["left_at_end"]["bytes"] == pool["alive_at_end"]["bytes"]
    csv = hurt.sonde("mem", "leaks", "--json", *hurt.out.rglob("device_cpu/dump/*.csv"))
    (from_csv,) = json.loads(csv.stdout)["processes"]
    assert from_csv["left_at_end"] == rest["left_at_end"]
    assert "libleaks" not in " ".join(x.c_stack for p in hurt.processes() for x in p.rows)


def test_python_before_it_tears_itself_down(hurt):
    """What it holds when its program has ended, though it frees that before it exits."""
    code = (
        "import atexit\n"
        "class Kept:\n"
        "    pass\n"
        "gone = bytearray(5 << 20)\n"
        "kept = Kept(); kept.data = bytearray(3 << 20)\n"
        "atexit.register(lambda: globals().pop('gone'))\n"
    )
    r = hurt.run(sys.executable, "-c", code, opts=["--device=cpu", "--call-stack=python:5"])
    assert r.returncode == 0
    (process,) = hurt.show()["processes"]
    places = process["pools"][0]["alive_at_end"]["places"]
    assert "<module> (<string>:5)" in {x["where"] for x in places if x["bytes"] >= 3 << 20}
    assert "<module> (<string>:4)" not in {x["where"] for x in places if x["bytes"] >= 3 << 20}
