# SPDX-License-Identifier: MulanPSL-2.0
"""Answers about host memory: several processes, limits, comparisons, what the blocks account for."""

import csv
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

import pytest

from capabilities import lacks
from waiting import wait_until

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


# One after the other, each with nothing but its own memory; nobody frees anything.
ALONE = "import os, sys; kept = bytearray(b'x') * (int(sys.argv[1]) << 20); os._exit(0)"


def test_processes_one_after_the_other_do_not_add_up(hurt):
    sizes = (50, 30, 40)
    script = "; ".join(f'"$0" -c "$1" {n}' for n in sizes) + "; true"
    hurt.run("/bin/sh", "-c", script, os.path.realpath(sys.executable), ALONE, opts=HOST)
    hurt.session.wait_finished()
    (device,) = ask(hurt, "show")["devices"]
    assert 50 <= device["peak_bytes"] / MIB < 60
    (together,) = ask(hurt, "peak")["together"]
    assert together["peak_bytes"] == device["peak_bytes"]


# A holds memory, nothing happens for a while, B takes some. Then A is killed, and C takes memory at once.
RELAY = """
import os, signal, sys, time
def hold(mib):
    ready = os.pipe()
    pid = os.fork()
    if not pid:
        kept = bytearray(mib << 20)
        os.write(ready[1], b"r")
        signal.pause()
    os.read(ready[0], 1)
    return pid
def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
for _ in range(8):
    a = hold(50)
    time.sleep(0.06)
    b = hold(30)
    end(a)
    c = hold(40)
    end(b); end(c)
    print(a, b, c)
"""


def life_of_large_block(h, pid):
    (path,) = h.out.glob(f"msmemscope_{pid}_*/device_cpu/dump/*.csv")
    with open(path) as f:
        rows = [r for r in csv.DictReader(f) if re.search(r"size:\d{8}", r["Attr"])]
    malloc, free = (int(r["Timestamp(ns)"]) for r in rows)
    return malloc, free


def test_the_end_of_a_process_is_known_at_once(hurt):
    """Its memory counts beside what others take before its end, and not beside what comes after."""
    rounds = run_python(hurt, RELAY).stdout.decode().splitlines()
    assert len(rounds) == 8
    for pids in rounds:
        a, b, c = (life_of_large_block(hurt, int(pid)) for pid in pids.split())
        assert b[0] < a[1] < c[0], "A has ended after B took memory, and before C did"
    (device,) = ask(hurt, "show")["devices"]
    assert 80 <= device["peak_bytes"] / MIB < 90


def test_one_of_several_processes(hurt):
    """What others had is no part of the answer."""
    pids = [int(x) for x in run_python(hurt, WORKERS).stdout.split()]
    facts = {p["pid"]: p for p in ask(hurt, "show", f"--pid={pids[0]}")["job"]}
    assert all(p["memory"] is None for pid, p in facts.items() if pid != pids[0])
    assert f"process {pids[1]}" not in said(hurt, "leaks", f"--pid={pids[0]}")


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


def test_compare_of_chosen_processes(hurts):
    """By rank in both, or by a pid of each."""
    sides, pids = [], []
    code = "kept = bytearray(int(os.environ['RANK']) * 4 << 20)"
    wait = "while not os.path.exists('go'): time.sleep(0.01)"
    for name, ranks in (("a", "1 2"), ("b", "3 2")):
        h = hurts(name)
        python = f"cd {h.tmp}; exec {sys.executable} -c \"import os, time; {code}\n{wait}\""
        program = f"for r in {ranks}; do (export RANK=$r; {python}) & done; wait"
        job = h.start("/bin/sh", "-c", program, opts=["--device=cpu", "--call-stack=python:10"])
        want = {int(r) for r in ranks.split()}
        wait_until(lambda: h.out.exists() and list(h.out.glob("recording_*/events.sonde")), "it")
        shown = wait_shown(h, lambda job: want <= {p["rank"] for p in job.values()})
        (h.tmp / "go").touch()
        job.wait(60)
        (h.tmp / "go").unlink()
        h.session.wait_finished()
        pids += [{p["rank"]: p["pid"] for p in shown["job"]}]
        sides += [h.recording]

    def differs(*words):
        out = ["-o", h.tmp / "result", "--level=site", "--json"]
        r = h.sonde("mem", "compare", *words, *out, *sides)
        assert r.returncode == 0, r.stderr
        return {d["device"]: round(d["diff_bytes"] / MIB) for d in json.loads(r.stdout)["devices"]}

    assert differs("--rank=2")["cpu"] == 0
    assert differs(f"--pid={pids[0][1]},{pids[1][3]}")["cpu"] == 8
    r = h.sonde("mem", "compare", "--rank=1", "-o", h.tmp, *sides)
    assert r.returncode == 1 and "no process of rank 1 is in the recording" in r.stderr
    for bad in ("--pid=x", "--pid=1,", "--pid=0", "--rank=-1"):
        assert h.sonde("mem", "compare", bad, *sides).returncode == 2


CPP_NAMES = '''
#include <stdlib.h>
void *keep(size_t n) __asm__("_ZN5model5Layer4keepEm");
void *run(void *(*fn)(void)) __asm__("_ZN5model5Layer3runEPFPvvE");
void *keep(size_t n) { void *p = malloc(n); *(volatile char *)p = 1; return p; }
void *run(void *(*fn)(void)) { void *p = fn(); __asm__ volatile("" ::: "memory"); return p; }
'''
MIXED = '''
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
keep = getattr(lib, "_ZN5model5Layer4keepEm")
run = getattr(lib, "_ZN5model5Layer3runEPFPvvE")
keep.restype = run.restype = ctypes.c_void_p
def inner():
    return keep(ctypes.c_size_t(5 << 20))
callback = ctypes.CFUNCTYPE(ctypes.c_void_p)(inner)
def outer(_):
    return run(callback)
next(map(outer, [0]))  # by way of C: the interpreter runs each function in a frame of its own
'''


def test_names_of_cpp_and_mixed_stacks_in_call_order(hurt):
    """Python calls C++, which calls Python, which calls C++, which allocates."""
    source, lib = hurt.tmp / "layer.c", hurt.tmp / "liblayer.so"
    source.write_text(CPP_NAMES)
    subprocess.run(["cc", "-O0", "-shared", "-fPIC", "-o", lib, source], check=True)
    run_python(hurt, MIXED, str(lib), opts=["--call-stack=c:60,python:20"])
    (process,) = ask(hurt, "show")["processes"]
    places = [p for pool in process["pools"] for p in pool["alive_at_end"]["places"]]
    place = next(p for p in places if p["bytes"] >= 5 * MIB)
    ours = [f for f in place["stack"] if "Layer" in f or "inner" in f or "outer" in f]
    names = [f.split("(")[0].strip() for f in ours]
    assert names == ["model::Layer::keep", "inner", "model::Layer::run", "outer"], place["stack"]
    text = hurt.sonde("mem", "show", hurt.recording).stdout.partition("Still allocated")[2]
    order = [text.find(f"        {x} (") for x in ("model::Layer::keep", "inner", "outer")]
    assert -1 not in order and order == sorted(order) and "_ZN5model" not in text, text


OWN_FILES = """
import sys
sys.path.insert(0, sys.argv[1])
import msmemscope
kept = []
def train():
    kept.append(bytearray(1 << 20))
msmemscope.start()
for _ in range(5):
    train()
    msmemscope.step()
"""


def test_our_own_files_are_no_place(hurt, build):
    """Our package allocates in the job, too; nobody looks for that in his program."""
    (hurt.tmp / "job.py").write_text(OWN_FILES)
    words = [hurt.tmp / "job.py", build / "python"]
    hurt.run(sys.executable, *words, opts=[*HOST, "--call-stack=python:10"])
    hurt.session.wait_finished()
    ours = ("_collectors.py", "_control.py", "_notes.py", "msmemscope/__init__.py")
    for question in (["show", "--top=1000"], ["leaks"], ["peak", "--by=line", "--top=1000"]):
        text = said(hurt, *question)
        assert "train (" in text and not [name for name in ours if name in text], text


def test_helpers_do_not_fill_the_answer(hurt):
    """Shims and shells that hold next to nothing are one line; JSON has them all."""
    code = "kept = bytearray(8 << 20)"
    program = f"for i in 1 2 3 4; do /bin/ls / >/dev/null; done; exec {sys.executable} -c '{code}'"
    hurt.start("/bin/bash", "-c", program, opts=HOST).wait(60)
    hurt.session.wait_finished()
    shown = ask(hurt, "show")
    programs = [(p["pid"], max(x["peak_bytes"] for x in p["pools"])) for p in shown["processes"]]
    (main,) = {pid for pid, peak in programs if peak >= MIB}
    small = {pid for pid, _ in programs} - {main}
    assert len(small) == 4 < len(programs), "a shell that becomes another program is one process"
    text = said(hurt, "show")
    assert text.startswith("1 process and 4 helpers made ") and "processes left blocks" not in text
    assert "/bin/ls" not in text and "bytearray" in text
    for question, did in (("show", "held"), ("leaks", "left"), ("peak", "held"), ("owners", "held")):
        text = said(hurt, question)
        assert f"and {len(small)} helper processes that {did} less than 1.00 MiB" in text, text
        assert not any(f"process {pid}" in text.lower() for pid in small), text
    assert "All 5 processes together" in said(hurt, "peak")
    assert len(ask(hurt, "peak")["devices"]) == len(programs)


# Both hold memory, one after the other, and are one process.
TWO_PROGRAMS = """
import os, sys
kept = bytearray(b"x") * (8 << 20)
os.execv(sys.executable, ["/second/program", "-c", "kept = bytearray(b'x') * (4 << 20)"])
"""


def test_two_programs_of_a_process_are_told_apart(hurt):
    run_python(hurt, TWO_PROGRAMS)
    for question in ("peak", "owners"):
        text = said(hurt, question)
        assert ", as python" in text and ", as program" in text, text


# --- who they are, how they ended ---

FORKED = """
import os, signal, sys
kept = [bytearray(b"x") * (1 << 20) for _ in range(30)]
ready = os.pipe()
pid = os.fork()
if not pid:
    own = [bytearray(b"x") * (1 << 20) for _ in range(10)]
    os.write(ready[1], b"r")
    signal.pause()
os.read(ready[0], 1)
print(pid, flush=True)
sys.stdin.readline()
os.kill(pid, signal.SIGTERM)
os.waitpid(pid, 0)
print("ended", flush=True)
signal.pause()
"""


def wait_shown(h, good):
    """A running recording, once it says so."""
    found = []

    def looks_good():
        found[:] = [ask(h, "show")]
        return good({p["pid"]: p for p in found[0]["job"]})

    wait_until(looks_good, "the recording to say it")
    return found[0]


def test_ranks_roles_and_ends(hurt):
    job = hurt.start(
        sys.executable, "-c", FORKED, opts=HOST, env={"RANK": "3"}, stdin=subprocess.PIPE
    )
    child = int(job.stdout.readline())
    sampled = lambda job: all(p["memory"] and p["rank"] == 3 for p in job.values()) and len(job) == 2
    wait_shown(hurt, sampled)
    text = said(hurt, "show")
    assert f"allocated now by process {job.pid} (rank 3), which is still running" in text
    assert "at the end of process" not in text.split("Process ")[0]
    job.stdin.write(b"\n")
    job.stdin.flush()
    assert job.stdout.readline() == b"ended\n"
    wait_shown(hurt, lambda job: job[child]["state"] != "running")
    job.kill()
    job.communicate()
    hurt.session.wait_finished()
    answer = ask(hurt, "show")
    main, worker = (next(p for p in answer["job"] if p["pid"] == pid) for pid in (job.pid, child))
    assert (main["role"], main["parent"], main["rank"]) == ("main", None, 3)
    assert (worker["role"], worker["parent"], worker["rank"]) == ("worker", job.pid, 3)
    # Since Linux 6.15 a process that somebody else has waited for still tells how it ended.
    if main["signal"] or worker["signal"] or platform_has_end_status():
        assert (main["state"], main["signal"]) == ("killed", "SIGKILL")
        assert (worker["state"], worker["signal"]) == ("killed", "SIGTERM")
        assert f"when process {job.pid} (rank 3) was killed by SIGKILL" in said(hurt, "show")
        for question in ("leaks", "peak", "owners"):
            assert f"Process {child} (rank 3, worker of {job.pid}) was killed by SIGTERM" in said(hurt, question)
    for question in ("show", "leaks", "peak", "owners", "gaps", "oom", "watch"):
        assert hurt.sonde("mem", question, f"--pid={child}", "--rank=3", hurt.recording).returncode == 0
        r = hurt.sonde("mem", question, "--rank=4", hurt.recording)
        assert r.returncode == 1 and f"there are {job.pid} (rank 3), {child} (rank 3)" in r.stderr
    devices = ask(hurt, "peak", f"--pid={child}")["devices"]
    assert [d["pid"] for d in devices] == [child] and devices[0]["peak_bytes"] < 20 * MIB
    assert hurt.sonde("mem", "show", "--rank=x", hurt.recording).returncode == 2


def platform_has_end_status():
    return tuple(int(x) for x in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 15)


# --- what the blocks account for ---

STEPS = """
import ctypes, mmap, os, sys, time
sys.path.insert(0, sys.argv[2])
import msmemscope
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
kept = []
def by_library(n):
    kept.append(bytearray(b"x") * n)
def by_system_call(n):
    # Nobody sees this one: no function of the C library is called for it.
    at = libc.syscall({"x86_64": 9, "aarch64": 222}[os.uname().machine], None, ctypes.c_size_t(n), 3, 0x22, -1, 0)
    ctypes.memset(at, 1, n)
unseen = sys.argv[1] == "unseen"
for step in range(5):
    for _ in range(4 if unseen else 1):
        (by_system_call if unseen else by_library)(4 << 20)
        if not unseen: kept.clear()
    time.sleep(0.12)
    msmemscope.step()
time.sleep(0.5)  # the recorder may get no processor for a while
"""


def test_coverage_is_stated(hurts, build):
    seen, unseen = hurts("seen"), hurts("unseen")
    for h, how in ((seen, "seen"), (unseen, "unseen")):
        run_python(h, STEPS, how, build / "python")
    good, partial = ask(seen, "leaks"), ask(unseen, "leaks")
    assert (good["coverage"], partial["coverage"]) == ("good", "partial")
    assert said(seen, "leaks").startswith("No leaks")
    assert "recorded blocks account for" in said(seen, "show")
    (process,) = partial["job"]
    highest = process["memory"]["highest"]
    assert highest["rss_bytes"] > 80 * MIB > 60 * MIB < highest["not_covered_bytes"]
    assert process["memory"]["uncovered_growth_bytes"] >= 40 * MIB
    text = said(unseen, "leaks")
    assert text.startswith("No place that was recorded kept more memory") and "it may leak" in text
    assert "not covered" in said(unseen, "peak").split("Host memory:")[0]
    assert "not covered comes on top" in said(unseen, "show")
    # A dump does not say it.
    (dump,) = seen.out.glob("msmemscope_*_ascend")
    assert ask(seen, "leaks", path=dump)["coverage"] == "unknown"
    assert "a dump does not say it" in said(seen, "peak", path=dump)


# Its peak lasts for a moment only; then it is another program, by exec(), or the child of a large one.
SHORT = """
import os, re, sys
if sys.argv[1:] == ["exec"]:
    large = bytearray(b"x") * (200 << 20)
    os.execv(sys.executable, [sys.executable, "-c", os.environ["SHORT"]])
large = bytearray(b"x") * (150 << 20)
del large
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


@pytest.mark.parametrize("how", ["alone", "exec"])
def test_the_kernels_peak_is_stated(hurt, how):
    """Samples of a short job miss it, and getrusage() mixes it with that of the program before."""
    python = os.path.realpath(sys.executable)
    r = hurt.run(python, "-c", SHORT, how, opts=HOST, env={"SHORT": SHORT})
    hurt.session.wait_finished()
    peak = int(r.stdout) << 10
    process = ask(hurt, "show")["job"][-1]
    assert peak <= process["peak_rss_bytes"] < peak + 4 * MIB
    assert process["peak_blocks_bytes"] >= 150 * MIB
    text = said(hurt, "peak")
    assert text.count("account for") <= 1, "a program that was replaced is none of its own"
    if process["memory"] and process["memory"]["highest"]["rss_bytes"] < peak - 2 * MIB:
        assert "Between samples it had up to" in text
    if not process["memory"]:
        assert "(RSS, the kernel's peak)" in text


# --- host memory that runs out ---

REFUSED = """
import resource, sys
def load(n): return bytearray(n)
kept = load(24 << 20)
limit = int(sys.argv[2]) << 20
resource.setrlimit(getattr(resource, sys.argv[1]), (limit, limit))
try: load(1 << 30)
except MemoryError: print("refused")
"""


def test_refused_by_a_limit(hurts):
    for name in ("RLIMIT_AS", "RLIMIT_DATA"):
        h = hurts(name)
        assert run_python(h, REFUSED, name, "400", opts=["--call-stack=python:10"]).stdout == b"refused\n"
        (incident,) = ask(h, "oom")["incidents"]
        assert (incident["device"], incident["function"]) == ("cpu", f"malloc, {name}")
        assert incident["requested_bytes"] == (1 << 30) + 1 and incident["where"].startswith("load (")
        assert incident["device_memory"]["total_bytes"] == 400 * MIB
        assert incident["device_memory"]["process_bytes"] > 24 * MIB
        used = incident["device_memory"]["space_bytes"]
        assert 24 * MIB < used < 400 * MIB and used + incident["requested_bytes"] > 400 * MIB
        assert incident["largest"][0]["bytes"] == (24 << 20) + 1
        r = h.sonde("mem", "oom", "--fail-on=oom", h.recording)
        assert r.returncode == 3 and r.stdout.startswith("Host memory ran out once: ")
        assert "in use; 1.00 GiB" in " ".join(r.stdout.split())
        assert re.search(r"Device cpu: 400.00 MiB allowed, [0-9.]+ MiB in use, ", r.stdout), r.stdout
        assert name in r.stdout and "asked of host memory" in said(h, "show")


def test_a_limit_below_what_is_in_use(hurt):
    """Set by a program that has more already: it is not a part of what it may have."""
    assert run_python(hurt, REFUSED, "RLIMIT_AS", "8").stdout == b"refused\n"
    words = " ".join(said(hurt, "oom").split())
    assert re.search(r"it may have 8.00 MiB of address space, .*, less than the [0-9.]+ MiB that were in use", words), words


@pytest.mark.parametrize("program", ["posix_memalign", "new"])
def test_refused_to_cpp_and_torch(hurt, program):
    """DefaultCPUAllocator asks posix_memalign(); operator new asks malloc()."""
    code = (
        "import ctypes\n"
        "p = ctypes.c_void_p()\n"
        "print(ctypes.CDLL(None).posix_memalign(ctypes.byref(p), 64, ctypes.c_size_t(1 << 60)))\n"
        if program == "posix_memalign"
        else "import ctypes\nf = ctypes.CDLL('libstdc++.so.6')._ZnwmRKSt9nothrow_t\n"
        "f.restype = ctypes.c_void_p\nprint(f(ctypes.c_size_t(1 << 60), ctypes.byref(ctypes.c_char())))\n"
    )
    out = run_python(hurt, code).stdout
    assert out in (b"12\n", b"None\n"), out
    (incident,) = ask(hurt, "oom")["incidents"]
    assert incident["requested_bytes"] == 1 << 60 and incident["verdict"] == "oversized request"
    assert "computed wrongly" in said(hurt, "oom")


def test_more_than_the_machine_has(hurt):
    """No limit, and an address space could hold it: but no machine here has 32 TiB."""
    code = "try: bytearray(32 << 40)\nexcept MemoryError: print('refused')"
    if run_python(hurt, code).stdout != b"refused\n":
        lacks("no-overcommit", "this kernel grants everything (vm.overcommit_memory=1)")
    (incident,) = ask(hurt, "oom")["incidents"]
    machine = incident["device_memory"]["machine_bytes"]
    kib = {k: int(v.split()[0]) for k, v in (x.split(":") for x in open("/proc/meminfo")) if "kB" in v}
    assert abs(machine - 1024 * (kib["MemTotal"] + kib["SwapTotal"])) < 2 * MIB
    assert incident["verdict"] == "oversized request"
    text = " ".join(said(hurt, "oom").split())
    assert text.startswith("Host memory was refused once: oversized request. Process ")
    assert "exhaustion" not in text and "the machine has " in text


def memory_group():
    """A new control group for memory (version 1 or 2), or a reason to skip."""
    mine = dict(line.split(":", 2)[1:] for line in open("/proc/self/cgroup").read().splitlines())
    old = "memory" in mine
    root = "/sys/fs/cgroup/memory" if old else "/sys/fs/cgroup"
    for base in (root + mine["memory" if old else ""], root):
        group = pathlib.Path(base) / f"sonde-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(64 * MIB))
            return group
        except OSError as e:
            why = e
            if group.is_dir():
                group.rmdir()
    lacks("memory-cgroup", f"none can be made here: {why}")


def test_killed_by_its_control_group(hurt):
    group = memory_group()
    hog = "kept = []\nwhile True: kept.append(bytearray(b'x') * (1 << 20))\n"
    try:
        script = f'echo $$ > {group}/cgroup.procs; exec "$0" "$@"'
        words = hurt.command(sys.executable, "-c", hog, opts=HOST)
        r = subprocess.run(["sh", "-c", script, *words], env=hurt.env(), cwd=hurt.tmp, capture_output=True)
        assert r.returncode == -signal.SIGKILL, r.stderr
        hurt.session.wait_finished()
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the group to be empty")
        group.rmdir()
    if not platform_has_end_status():
        lacks("end-status", "this kernel does not tell it")
    (process,) = [p for p in ask(hurt, "oom")["job"] if p["signal"]]
    assert process["killed_by_group"] and process["signal"] == "SIGKILL"
    r = hurt.sonde("mem", "oom", "--fail-on=oom", hurt.recording)
    assert r.returncode == 3
    text = " ".join(r.stdout.split())
    assert "because its control group had no more memory than 64.00 MiB" in text


EVENTS_V2 = "low 0\nhigh 0\nmax 118\noom {0}\noom_kill {0}\noom_group_kill 0\n"


@pytest.mark.needs("root")
def test_killed_by_a_control_group_of_version_2(hurt):
    """The files are made, in the form that the kernel gives them: few machines have both versions."""
    if not platform_has_end_status():
        lacks("end-status", "this kernel does not tell it")
    code = "import sys, time; kept = bytearray(1 << 20); print('ready', flush=True); time.sleep(60)"
    groups = "/sys/fs/cgroup"
    command = shlex.join(hurt.command(sys.executable, "-c", code, opts=HOST))
    script = f"""
        mount -t tmpfs none {groups} || exit 99
        mkdir -p {groups}$(sed -n 's/^0:://p' /proc/self/cgroup)
        echo {64 * MIB} > {groups}/memory.max
        echo {63 * MIB} > {groups}/memory.current
        printf '{EVENTS_V2.format(0)}' > {groups}/memory.events
        {command} > {hurt.tmp}/said & job=$!
        while [ ! -s {hurt.tmp}/said ] && kill -0 $job; do sleep 0.02; done
        sleep 0.3
        printf '{EVENTS_V2.format(1)}' > {groups}/memory.events
        kill -9 $job; wait $job; sleep 0.5
    """
    r = subprocess.run(["unshare", "-m", "sh", "-c", script], env=hurt.env(), capture_output=True, timeout=60)
    if r.returncode == 99:
        lacks("mount", "cannot mount a tmpfs")
    hurt.session.wait_finished()
    (process,) = [p for p in ask(hurt, "oom")["job"] if p["signal"]]
    assert process["killed_by_group"] and process["signal"] == "SIGKILL", r.stderr
    text = " ".join(said(hurt, "oom").split())
    assert "because its control group had no more memory than 64.00 MiB" in text
