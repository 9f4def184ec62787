# SPDX-License-Identifier: MulanPSL-2.0
"""Which processes are looked at: names, families, groups, users of devices; and counters beside the
stacks. Everything is asked of `sonde snap` and `sonde stack`, about real processes."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from capabilities import lacks
from recording import clean_env
from waiting import pause, wait_until

# Says "ready", and ends with its stdin.
WAIT = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n"

# The same while it holds memory of the simulated NPU: sys.argv is [_, libraries, device, MB].
HOLD = """
import ctypes, sys
acl = ctypes.CDLL(sys.argv[1] + "/libascendcl.so")
block = ctypes.c_void_p()
assert acl.aclInit(None) == 0 and acl.aclrtSetDevice(int(sys.argv[2])) == 0
assert acl.aclrtMalloc(ctypes.byref(block), ctypes.c_size_t(int(sys.argv[3]) << 20), 0) == 0
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def running(command, **env):
    """A process that has said "ready"; with it all that it started is ended."""
    p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         env={**os.environ, **{k: str(v) for k, v in env.items()}},
                         start_new_session=True)
    try:
        assert p.stdout.readline() == b"ready\n"
        yield p
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(p.pid, signal.SIGKILL)
        p.stdin.close()
        p.stdout.close()
        p.wait(timeout=20)


def python(tmp_path, name, code=WAIT, *args):
    script = tmp_path / name
    script.write_text(code)
    return [sys.executable, str(script), *map(str, args)]


@pytest.fixture
def snap(build, tmp_path):
    """Runs `sonde snap --json`: the set of pids that it saw, or all that it said."""

    def run(*words, libraries=False, path=None, whole=False, **env):
        e = clean_env(tmp_path, **env)
        if libraries:
            e["LD_LIBRARY_PATH"] = str(build / "sim")
        if path:
            e["PATH"] = f"{path}:{e['PATH']}"
        r = subprocess.run([build / "bin" / "sonde", "snap", "--json", *map(str, words)], env=e,
                           text=True, timeout=60, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if whole:
            return r
        answer = json.loads(r.stdout) if r.stdout.strip() else {"groups": []}
        return {t["pid"] for g in answer["groups"] for t in g["threads"]}

    return run


# --- names, families, groups ---


def test_a_name(snap, tmp_path):
    with running(python(tmp_path, "train_abc.py")) as a, \
         running(python(tmp_path, "train_abd.py", WAIT, "--lr=7.125")) as b, \
         running(["sh", "-c", "echo ready; exec cat # train_abc"]):
        assert snap("--name", "train_abc") == {a.pid}
        assert snap("--name", "train_ab") == {a.pid, b.pid}
        assert snap("--name", "train_abd.py --lr=7") == {b.pid}
        assert snap("--name", "train_abc", "--name", "lr=7.125") == {a.pid, b.pid}
        assert snap("--name", "train_abx") == set()


def test_a_family(snap, tmp_path):
    """A shell that starts Python that starts Python."""
    inner = tmp_path / "inner.py"
    inner.write_text(WAIT)
    code = f"""
import subprocess, sys
kids = [subprocess.Popen([sys.executable, {str(inner)!r}], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE) for _ in range(3)]
for k in kids:
    assert k.stdout.readline() == b"ready\\n"
print("ready", flush=True)
sys.stdin.read()
"""
    outer = " ".join(python(tmp_path, "outer.py", code))
    with running(["sh", "-c", f"{outer}; true"]) as shell:
        seen = snap("--parent", shell.pid)
        assert len(seen) == 4 and shell.pid not in seen
        (parent,) = snap("--name", str(tmp_path / "outer.py"))
        assert parent in seen
        assert snap("-p", parent) == {parent}
        assert snap("-p", parent, "--children") == seen


def test_a_group(snap, tmp_path):
    """A cgroup of this machine if one can be made, and else a directory that looks like one."""
    with running(python(tmp_path, "grouped.py")) as p:
        group = tmp_path / "group"
        made = pathlib.Path(f"/sys/fs/cgroup/sonde-test-{os.getpid()}")
        try:
            made.mkdir()
            (made / "cgroup.procs").write_text(str(p.pid))
            assert snap("--cgroup", made.name) == {p.pid}
            group = made
        except OSError:
            group.mkdir()
            (group / "cgroup.procs").write_text(f"{p.pid}\n")
        try:
            assert snap("--cgroup", group) == {p.pid}
        finally:
            p.kill()
            p.wait()
            with contextlib.suppress(OSError):
                made.rmdir()
        assert snap("--cgroup", "3f2a9c0d1e55aabbccdd") == set()


def test_ranks(snap, tmp_path):
    with running(python(tmp_path, "ranked.py"), RANK="x", PMI_RANK=6) as a, \
         running(python(tmp_path, "ranked.py"), OMPI_COMM_WORLD_RANK=11) as b:
        answer = json.loads(snap("-p", f"{a.pid},{b.pid}", whole=True).stdout)
        ranks = {t["pid"]: t["rank"] for g in answer["groups"] for t in g["threads"]}
        assert ranks == {a.pid: 6, b.pid: 11}


def test_a_dead_pid(snap, tmp_path):
    p = subprocess.Popen(["true"])
    p.wait()
    r = snap("-p", p.pid, whole=True)
    assert r.returncode != 0 and f"no process {p.pid}" in r.stderr


# --- following ---


@contextlib.contextmanager
def stack(build, tmp_path, *words, libraries=False, **env):
    """`sonde stack` in the background; afterwards .events holds what it wrote."""
    e = clean_env(tmp_path, **env)
    if libraries:
        e["LD_LIBRARY_PATH"] = str(build / "sim")
    out = tmp_path / "trace.json"
    p = subprocess.Popen([build / "bin" / "sonde", "stack", "-o", out, *map(str, words)], env=e,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    p.events = []
    try:
        wait_until(out.exists, "the trace")
        yield p
        p.send_signal(signal.SIGINT)
        p.said = p.communicate(timeout=30)
        assert p.returncode == 0, p.said
        p.events = json.loads(out.read_text())["traceEvents"]
    finally:
        if p.poll() is None:
            p.kill()
            p.communicate()


def wait_seen(tmp_path, text, kind="B", seconds=30):
    """Until the trace, which is written as it goes, has an event with this text."""
    wanted = re.compile(f'"ph":"{kind}".*{re.escape(text)}|{re.escape(text)}.*"ph":"{kind}"')
    wait_until(lambda: wanted.search((tmp_path / "trace.json").read_text()), text, seconds)


def begun(events):
    """The pids of which stacks were seen."""
    return {e["pid"] for e in events if e["ph"] == "B"}


def balanced(events):
    depth = {}
    for e in events:
        if e["ph"] in "BE":
            key = e["pid"], e["tid"]
            depth[key] = depth.get(key, 0) + (1 if e["ph"] == "B" else -1)
            assert depth[key] >= 0
    return not any(depth.values())


def test_children_come_and_go(build, tmp_path):
    script = python(tmp_path, "child.py")
    seen = set()
    code = "import sys\nprint('ready', flush=True)\nimport subprocess\n" \
           "for line in sys.stdin:\n" \
           f"    p = subprocess.Popen({script!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n" \
           "    p.stdout.readline(); print(p.pid, flush=True); sys.stdin.readline()\n" \
           "    p.stdin.close(); p.wait(); print('ended', flush=True)\n"
    with running(python(tmp_path, "mother.py", code)) as mother:
        with stack(build, tmp_path, "--parent", mother.pid, "-i", "0.01",
                   "--refresh-interval", "0.05") as s:
            for _ in range(3):
                mother.stdin.write(b"start\n")
                mother.stdin.flush()
                pid = int(mother.stdout.readline())
                seen.add(pid)
                wait_seen(tmp_path, f'"pid":{pid},')
                mother.stdin.write(b"end\n")
                mother.stdin.flush()
                assert mother.stdout.readline() == b"ended\n"
    assert len(seen) == 3 and begun(s.events) == {mother.pid} | seen
    assert balanced(s.events)


@pytest.mark.needs("python-vfork")
def test_what_python_starts_is_no_python(build, tmp_path):
    """Between vfork and exec a child has its parent's memory, and is not shown as a second one."""
    code = """
import subprocess, sys, time
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + 1
while time.monotonic() < end:
    subprocess.call(["/bin/true"])
print("done", flush=True)
sys.stdin.read()
"""
    with running(python(tmp_path, "starts.py", code)) as p:
        with stack(build, tmp_path, "--parent", p.pid, "-i", "0.001",
                   "--refresh-interval", "0.005") as s:
            p.stdin.write(b"\n")
            p.stdin.flush()
            assert p.stdout.readline() == b"done\n"
    assert begun(s.events) == {p.pid} and balanced(s.events)


def test_orphans(build, tmp_path):
    """Whoever started the job leaves it; the job starts another process."""
    job = "import os, subprocess, sys, time\n" \
          f"open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')\n" \
          "if len(sys.argv) > 1:\n" \
          f"    while not os.path.exists({str(tmp_path / 'alone')!r}):\n" \
          "        time.sleep(0.01)\n" \
          "    subprocess.Popen([sys.executable, sys.argv[0]])\n" \
          "time.sleep(60)\n"
    line = " ".join(python(tmp_path, "orphan.py", job, "first"))
    with running(["sh", "-c", f"{line} & echo ready; read go"]) as shell:
        with stack(build, tmp_path, "--parent", shell.pid, "-i", "0.01",
                   "--refresh-interval", "0.05") as s:
            wait_seen(tmp_path, "/orphan.py")
            shell.stdin.write(b"go\n")
            shell.stdin.flush()
            shell.wait(timeout=20)
            (tmp_path / "alone").touch()
            path = tmp_path / "pids"
            wait_until(lambda: path.exists() and len(path.read_text().split()) == 2, "both pids")
            for pid in (tmp_path / "pids").read_text().split():
                wait_seen(tmp_path, f'"pid":{pid},')
    assert begun(s.events) == {int(p) for p in (tmp_path / "pids").read_text().split()}


def test_a_shell_that_becomes_python(build, tmp_path):
    """exec: the same pid, and no Python before it."""
    line = " ".join(python(tmp_path, "late.py"))
    with running(["sh", "-c", f"echo ready; read go; exec {line}"]) as p:
        with stack(build, tmp_path, "--parent", p.pid, "-i", "0.01",
                   "--refresh-interval", "0.05") as s:
            pause(0.3, "it is looked at while it is a shell")
            p.stdin.write(b"go\n")
            p.stdin.flush()
            assert p.stdout.readline() == b"ready\n"
            wait_seen(tmp_path, "late.py")
    assert begun(s.events) == {p.pid} and balanced(s.events)


def test_python_that_becomes_python(build, tmp_path):
    """Frames of the program before do not stay open."""
    second = python(tmp_path, "second.py")
    code = "import os, sys\nprint('ready', flush=True)\nsys.stdin.readline()\n" \
           f"os.execv({second[0]!r}, {second!r})\n"
    with running(python(tmp_path, "first.py", code)) as p:
        with stack(build, tmp_path, "-p", p.pid, "-i", "0.01") as s:
            wait_seen(tmp_path, "/first.py")
            p.stdin.write(b"go\n")
            p.stdin.flush()
            assert p.stdout.readline() == b"ready\n"
            wait_seen(tmp_path, "/second.py")
    files = {e["args"]["file"].rsplit("/", 1)[-1] for e in s.events if e["ph"] == "B"}
    assert {"first.py", "second.py"} <= files and balanced(s.events)


def test_a_pid_that_is_used_again(build, tmp_path):
    """Another process under the pid that was named is not meant."""
    last = pathlib.Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(last, os.W_OK):
        lacks("choose-pids", "ns_last_pid cannot be written")
    with running(python(tmp_path, "named.py")) as first:
        with stack(build, tmp_path, "-p", first.pid, "--parent", os.getpid(), "-i", "0.01",
                   "--refresh-interval", "0.05") as s:
            wait_seen(tmp_path, "/named.py")
            first.kill()
            first.wait()
            stranger = None
            for _ in range(200):
                try:
                    last.write_text(str(first.pid - 1))
                except OSError:
                    lacks("choose-pids", "ns_last_pid cannot be written")
                stranger = subprocess.Popen(python(tmp_path, "stranger.py"), stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE)
                if stranger.pid == first.pid:
                    break
                stranger.kill()
                stranger.communicate()
            try:
                if stranger.pid != first.pid:
                    lacks("choose-pids", "another process took the pid")
                assert stranger.stdout.readline() == b"ready\n"
                wait_seen(tmp_path, "/stranger.py")
            finally:
                stranger.kill()
                stranger.communicate()
    # It is followed as a child of ours, as a process of its own: what the first ran has ended.
    files = [e["args"]["file"].rsplit("/", 1)[-1] for e in s.events
             if e["ph"] == "B" and e["pid"] == first.pid]
    assert files.index("stranger.py") > files.index("named.py") and balanced(s.events)
    names = [e["args"]["name"] for e in s.events
             if e["ph"] == "M" and e["name"] == "process_name" and e["pid"] == first.pid]
    assert any("named.py" in n for n in names) and any("stranger.py" in n for n in names)


# --- devices ---


@pytest.fixture
def npu_jobs(build, tmp_path):
    """Two Python processes: 6000 MB of NPU 0, and 100 MB of NPU 1."""
    env = clean_env(tmp_path, LD_LIBRARY_PATH=build / "sim", SIM_NPU_COUNT=4)
    with running(python(tmp_path, "big.py", HOLD, build / "sim", 0, 6000), **env) as big, \
         running(python(tmp_path, "small.py", HOLD, build / "sim", 1, 100), **env) as small:
        yield big.pid, small.pid


def test_npu_processes(snap, npu_jobs, build):
    big, small = npu_jobs
    library = {"libraries": True, "SIM_NPU_COUNT": 4}
    program = {"path": build / "sim", "SIM_NPU_COUNT": 4}
    for how in (library, program):
        assert snap("--min-hbm-usage-mb", 0, **how) == {big, small}
        assert snap("--min-hbm-usage-mb", 5000, **how) == {big}


TABLE = """
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B2               | OK            | 96.4        41                0    / 0             |
| 0                         | 0000:C1:00.0  | 63          0    / 0          41277/ 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |{fifth}
+===========================+===============+====================================================+
| 0       0                 | {a:<14}|                          | 38211                   |{fifth_a}
| 0       0                 | {b:<14}| rayWorkerDict            | 702                     |{fifth_b}
| 0       0                 | 4194304       | python                   | 9000                    |{fifth_b}
+===========================+===============+====================================================+
| No running processes found in NPU 1                                                            |
+===========================+===============+====================================================+
"""


def tool(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("columns", [4, 5])
def test_npu_smi_tables(snap, tmp_path, columns):
    with running(python(tmp_path, "one.py")) as a, running(python(tmp_path, "two.py")) as b:
        fifth = {"fifth": " Process id in container |", "fifth_a": " 7 |", "fifth_b": "  |"} \
            if columns == 5 else {"fifth": "", "fifth_a": "", "fifth_b": ""}
        # Inside a container the fifth column counts, and 7 is not ours: the host's number would be.
        inside = os.readlink("/proc/self/ns/pid") != "pid:[4026531836]"
        if columns == 5 and inside:
            fifth["fifth_a"] = f" {a.pid} |"
        path = tool(tmp_path / "bin", "npu-smi", TABLE.format(a=a.pid, b=b.pid, **fifth))
        assert snap("--min-hbm-usage-mb", 0, path=path) == {a.pid, b.pid}
        assert snap("--min-hbm-usage-mb", 5000, path=path) == {a.pid}


def test_gpu_processes(snap, build, tmp_path):
    with running(python(tmp_path, "one.py")) as a, running(python(tmp_path, "two.py")) as b, \
         running(python(tmp_path, "three.py")) as c:
        # The library of GPUs alone: with one of NPUs beside it, it would be asked for NPUs.
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "libnvidia-ml.so.1").symlink_to(build / "sim" / "libnvidia-ml.so")
        library = {"LD_LIBRARY_PATH": tmp_path / "lib", "SIM_GPU_COUNT": 2,
                   "SIM_GPU_PID": f"{a.pid}@1,{b.pid}", "SIM_GPU_GRAPHICS_PID": c.pid}
        path = tool(tmp_path / "bin", "nvidia-smi",
                    f"{a.pid}, 4096\n{b.pid}, [N/A]\n{c.pid}, 10\n4194304, 5000")
        assert snap("--min-gpu-mem-usage-mb", 0, path=path) == {a.pid, b.pid, c.pid}
        assert snap("--min-gpu-mem-usage-mb", 100, path=path) == {a.pid, b.pid}
        assert snap(**library) == {a.pid, b.pid, c.pid}
        assert snap("--min-gpu-mem-usage-mb", 20000, **library) == set()


# --- counters ---


def counters(events):
    found = {}
    for e in events:
        if e["ph"] == "C":
            for key, value in e["args"].items():
                found.setdefault((e["name"], key, e.get("id")), []).append(value)
    return found


def test_counters(build, tmp_path):
    with running(python(tmp_path, "counted.py")) as p:
        with stack(build, tmp_path, "-p", p.pid, "-i", "0.02", "--npu-usage", "--gpu-usage",
                   "--cpu-mem-usage", "--process-usage", libraries=True, SIM_NPU_COUNT=2,
                   SIM_GPU_COUNT=2) as s:
            for name in ("process_cpu_percent", "gpu_memory_used_mb", "npu_hbm_used_mb", "cpu_mem"):
                wait_seen(tmp_path, name, "C")
    got = counters(s.events)
    by_card = {("npu_aicore_usage_rate", "aicore"), ("npu_hbm_usage_rate", "hbm"),
               ("npu_hbm_used_mb", "hbm_used_mb"), ("gpu_utilization_rate", "gpu"),
               ("gpu_memory_usage_rate", "memory"), ("gpu_memory_used_mb", "memory_used_mb")}
    assert {(n, k) for n, k, card in got if card is not None} == by_card
    for name, key in by_card:
        assert {card for n, k, card in got if (n, k) == (name, key)} == {"0", "1"}
    assert set(got["gpu_utilization_rate", "gpu", "1"]) == {41}
    assert set(got["gpu_memory_used_mb", "memory_used_mb", "0"]) == {10 * 1024}
    host = {k for n, k, _ in got if n == "cpu_mem"}
    assert host == {"total_bytes", "used_bytes", "available_bytes", "usage_rate"}
    assert got["process_rss_mb", "rss_mb", None][0] > 1
    assert all(0 <= v < 1000 for v in got["process_cpu_percent", "cpu", None])
    for e in s.events:
        told = re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", e["args"].get("abs_time", ""))
        assert bool(told) == (e["ph"] in "BEM"), e
    check_arrays(json.loads((tmp_path / "trace.json").read_text()), got)


def check_arrays(trace, got):
    """The same numbers beside the events, for programs that read them there."""
    values = lambda list: [p["value"] for p in list]  # noqa: E731
    for device, names in (("npu", ("aicore_usage_rate", "hbm_usage_rate", "hbm_used_mb")),
                          ("gpu", ("utilization_rate", "memory_usage_rate", "memory_used_mb"))):
        total = names[2].replace("used", "total")
        assert trace[device]["every"] == 1 and set(trace[device]["cards"]) == {"0", "1"}
        for card in trace[device]["cards"].values():
            assert set(card) == {*names, total} and all(card.values())
            assert all(p["ts_us"] >= 0 and set(p) == {"ts_us", "value"} for p in card[names[0]])
        for name in names:
            assert max(values(trace[device][name])) == max(
                max(values(card[name])) for card in trace[device]["cards"].values())
    cards = trace["gpu"]["cards"]
    assert values(cards["1"]["utilization_rate"]) == got["gpu_utilization_rate", "gpu", "1"]
    assert all(p["free_bytes"] + p["buff_cache_bytes"] <= p["total_bytes"] and
               {"shared_bytes", "available_bytes", "used_bytes", "usage_rate"} <= set(p)
               for p in trace["cpu"]["mem"]) and trace["cpu"]["mem"]


GPUS = "0, 37, 12, 4096, 81559\n1, [N/A], [Not Supported], 100, 81559"


def test_counters_by_programs(build, tmp_path):
    """Where there is no library: every card of both tools, what a card cannot say is left out."""
    path = tool(tmp_path / "bin", "nvidia-smi", GPUS)
    (path / "npu-smi").symlink_to(build / "sim" / "npu-smi")
    with running(python(tmp_path, "counted.py")) as p:
        with stack(build, tmp_path, "-p", p.pid, "-i", "0.02", "--npu-usage", "--gpu-usage",
                   SIM_NPU_COUNT=3, PATH=f"{path}:{os.environ['PATH']}") as s:
            for name in ("gpu_memory_used_mb", "npu_hbm_used_mb"):
                wait_seen(tmp_path, name, "C")
    got = counters(s.events)
    for name, key in (("npu_aicore_usage_rate", "aicore"), ("npu_hbm_usage_rate", "hbm"),
                      ("npu_hbm_used_mb", "hbm_used_mb")):
        assert {card for n, k, card in got if (n, k) == (name, key)} == {"0", "1", "2"}
    assert set(got["gpu_utilization_rate", "gpu", "0"]) == {37}
    assert ("gpu_utilization_rate", "gpu", "1") not in got
    assert set(got["gpu_memory_used_mb", "memory_used_mb", "1"]) == {100}


def test_a_tool_that_hangs_delays_nothing(build, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("npu-smi", "nvidia-smi"):
        (folder / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (folder / name).chmod(0o755)
    with running(python(tmp_path, "sampled.py")) as p:
        begin = time.monotonic()
        with stack(build, tmp_path, "-p", p.pid, "-i", "0.02", "--npu-usage", "--npu-smi-timeout",
                   "0.3", "--gpu-usage", "--gpu-smi-timeout", "0.3",
                   PATH=f"{folder}:{os.environ['PATH']}") as s:
            wait_seen(tmp_path, "sampled.py")
            wait_until(lambda: "300 ms" in (tmp_path / "trace.json.log").read_text(), "it in the log")
        assert time.monotonic() - begin < 30
    assert begun(s.events) == {p.pid}
    assert "300 ms" in s.said[1]
