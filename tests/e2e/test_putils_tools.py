# SPDX-License-Identifier: MulanPSL-2.0
"""Parts of putils that need no PyTorch: processors, loads, traces; every module on every interpreter."""

import errno
import json
import os
import re
import subprocess
import sys
import threading

import pip_packages
import pytest
from capabilities import lacks
from putils_package import putils, run  # noqa: F401
from pythons import one_per_minor


# --- every interpreter ---

EVERYWHERE = """
import inspect, sys, types
import putils
assert not {"torch", "numpy", "debugpy", "viztracer"} & set(sys.modules)
for name in ("MFU", "burn", "compare_hooks", "compare_perf", "npu_affinity_benchmark", "perf", "profiling",
             "saver", "trace_manager", "weight"):
    module = getattr(putils, name)
    assert name in putils.__all__ and module.__doc__, name
    for word, thing in vars(module).items():
        ours = getattr(thing, "__module__", "").startswith("putils." + name)
        if not word.startswith("_") and ours and (inspect.isfunction(thing) or inspect.isclass(thing)):
            assert thing.__doc__, (name, word)
            plain = inspect.isclass(thing) and issubclass(thing, (Exception, tuple))
            assert plain or ">>>" in thing.__doc__, (name, word)
import putils.compare_perf.aligned, putils.compare_perf.report, putils.compare_perf.cli
from putils.compare_perf import align_modules
assert align_modules(["a.layer.1.attn"], ["b.block.1.attention"])["counts"]["matched"] == 0
from putils.perf import DistAffinityPriority
with DistAffinityPriority(high_priority=None):
    pass
from putils._support.xlsx import Sheet, workbook
assert workbook([Sheet("s", [["a"], [1]])])[:2] == b"PK"
assert not {"torch", "numpy", "debugpy", "viztracer"} & set(sys.modules)
print("done")
"""


@pytest.mark.parametrize("python", one_per_minor(oldest=8))
def test_every_module_needs_python_alone(build, python, tmp_path):
    done = run(build, "-c", EVERYWHERE, python=python.path, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("tool", ["npu_affinity_benchmark", "parse_hooks_to_excel", "weightShape"])
def test_programs_by_their_paths(build, tool, tmp_path):
    path = build / f"python/putils/tools/{tool}.py"
    assert os.access(path, os.X_OK) and not os.access(build / "python/putils/burn.py", os.X_OK)
    done = subprocess.run([path, "--help"], cwd=tmp_path, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0 and b"usage: putils." in done.stdout


# --- processors ---


def test_affinity_and_priority_are_as_before_afterwards():
    from putils.perf import DistAffinityPriority

    if len(os.sched_getaffinity(0)) < 2:
        lacks("two-processors", "one processor")
    state = lambda: (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    before, inside = state(), []
    released = threading.Event()

    def body():
        # root may put a priority back; others may not
        nice = before[1] + 1 if os.geteuid() == 0 else None
        with pytest.raises(KeyError):
            with DistAffinityPriority(total_ranks=2, high_priority=nice):
                inside.append(state())
                started = threading.Thread(target=released.wait)
                started.start()
                inside.append(os.sched_getaffinity(started.native_id))
                raise KeyError
        inside.append(os.sched_getaffinity(started.native_id))
        released.set()
        started.join()

        @DistAffinityPriority(total_ranks=2, high_priority=None)
        def recursive(n):
            inside.append(len(os.sched_getaffinity(0)))
            return n and recursive(n - 1)

        recursive(1)
        inside.append(state())

    thread = threading.Thread(target=body)  # a thread of its own: the test's is not touched
    thread.start()
    thread.join()
    (cpus, nice), started, restored, outer, inner, after = inside
    assert len(cpus) == len(before[0]) // 2 == len(started) == outer == inner
    assert nice == before[1] + (os.geteuid() == 0)
    assert restored == before[0] and after == before == state()


def test_a_priority_that_is_not_allowed_is_a_word(build):
    code = "import os, resource\nresource.setrlimit(resource.RLIMIT_NICE, (0, 0))\n" if os.geteuid() else (
        "import os\nos.setgroups([])\nos.setuid(61001)\n")  # fmt: skip
    code += "from putils.perf import DistAffinityPriority\n"
    code += "for _ in range(2):\n    with DistAffinityPriority():\n        pass\nprint('went on')"
    done = run(build, "-c", code, python="/usr/bin/python3", cwd="/")
    if "No module named" in done.stderr or "Permission denied: '/root" in done.stderr:
        lacks("shared-build", "another user cannot read the build")
    assert done.stdout == "went on\n" and done.stderr.count("the priority -10 cannot be set") == 1, done


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Two NUMA nodes of two cores with two threads each, two devices on either."""
    from putils import perf
    from putils._support import topology as _topology

    files = {"/sys/devices/system/node/online": "0-1\n"}
    for node, cpus in ((0, "0-1,4-5"), (1, "2-3,6-7")):
        files[f"/sys/devices/system/node/node{node}/cpulist"] = cpus + "\n"
    for cpu in range(8):
        files[f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = f"{cpu % 4},{cpu % 4 + 4}\n"
    for i, node in enumerate((0, 0, 1, 1)):
        device = tmp_path / f"0000:{i + 1:02d}:00.0"
        device.mkdir()
        for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("numa_node", str(node))):
            (device / name).write_text(text + "\n")
    audio = tmp_path / "0000:01:00.1"
    audio.mkdir()
    (audio / "vendor").write_text("0x10de\n")
    (audio / "class").write_text("0x040300\n")
    found = _topology.accelerators(str(tmp_path))
    monkeypatch.setattr(_topology, "accelerators", lambda: found)
    monkeypatch.setattr(_topology.read_text, "__code__", (lambda path: FILES.get(path)).__code__)
    monkeypatch.setitem(_topology.read_text.__globals__, "FILES", files)
    monkeypatch.setattr(perf.os, "sched_getaffinity", lambda pid: set(range(8)))
    for word in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "RANK", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(word, raising=False)
    return found


def test_ranks_get_processors_beside_their_devices(machine, monkeypatch):
    from putils.perf import plan_cpus

    assert [d.node for d in machine] == [0, 0, 1, 1]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    # whole cores: a processor and its sibling
    assert [plan_cpus(rank=r).cpus for r in range(4)] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert plan_cpus(rank=2).why == "NUMA node 1, beside device 0000:03:00.0"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert plan_cpus(rank=0).cpus == [0, 4, 1, 5]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # a rank that sees its own device alone
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert plan_cpus().cpus == [3, 7]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert [plan_cpus(rank=r).cpus for r in (0, 1)] == [[2, 6], [3, 7]]
    # numbers that are given: one rank after the other, what is allowed of it
    assert plan_cpus(total_cpus=192, total_ranks=96, rank=1).cpus == [2, 3]
    assert plan_cpus(total_cpus=192, total_ranks=32, rank=1).cpus == [6, 7]
    assert plan_cpus(total_cpus=192, total_ranks=32, rank=9).cpus == []


def test_lists_of_processors():
    from putils._support.topology import format_cpu_list, parse_cpu_list

    assert parse_cpu_list("0-2,8\n") == [0, 1, 2, 8] and parse_cpu_list("x,-3,4-,5") == [5]
    assert parse_cpu_list(None) == parse_cpu_list("") == []
    assert format_cpu_list([8, 0, 1, 2, 2]) == "0-2,8" and format_cpu_list([]) == ""


# --- which processors feed a device fastest ---


def topology(nodes, cpus):
    return {"nodes": [{"node_id": i, "cpus": c} for i, c in enumerate(nodes)],
            "effective_domain": {"cpus": cpus, "mems": list(range(len(nodes)))}}  # fmt: skip


def test_candidates():
    from putils.npu_affinity_benchmark import generate_candidate_cpu_lists

    lists = lambda t, p: [c["cpu_list"] for c in generate_candidate_cpu_lists(t, p)]
    small = topology([[0, 1], [4, 7]], [1, 4, 7])
    assert lists(small, "full") == [[1], [4], [7], [4, 7], [1, 4, 7]]
    large = topology([list(range(n * 16, n * 16 + 16)) for n in range(3)], list(range(48)))
    smoke = lists(large, "smoke")
    assert [len(c) for c in smoke] == [16, 16, 16, 48]  # not four processors of the first node
    assert [len(lists(large, p)) for p in ("medium", "full")] == [12, 55]
    assert generate_candidate_cpu_lists(large, "full")[54]["candidate_id"] == "c054"
    assert lists(topology([], []), "smoke") == []
    with pytest.raises(ValueError, match="Invalid profile: huge. Expected one of"):
        lists(small, "huge")


def test_domains_of_both_control_group_versions():
    from putils.npu_affinity_benchmark import discover_topology

    files = {
        "/sys/devices/system/cpu/online": "0-7\n",
        "/sys/devices/system/node/online": "0-1\n",
        "/sys/devices/system/node/node0/cpulist": "0-3\n",
        "/sys/devices/system/node/node1/cpulist": "4-7\n",
    }
    two = {"/proc/self/cgroup": "0::/pod\n", "/sys/fs/cgroup/pod/cpuset.cpus.effective": "1,4-7\n",
           "/sys/fs/cgroup/pod/cpuset.mems.effective": "1\n"}  # fmt: skip
    one = {"/proc/self/cgroup": "5:cpuset:/pod\n", "/sys/fs/cgroup/cpuset/pod/cpuset.effective_cpus": "1,4-7\n",
           "/sys/fs/cgroup/cpuset/pod/cpuset.effective_mems": "1\n"}  # fmt: skip
    for more in (two, one):
        found = discover_topology({**files, **more}.get, lambda pid: {0, 1, 4})
        assert found["status"] == "ok" and found["effective_domain"] == {"cpus": [1, 4], "mems": [1]}
    found = discover_topology({**files, **two}.get, lambda pid: {0})
    assert (found["status"], found["error"]["code"]) == ("error", "EMPTY_EFFECTIVE_CPUS")
    assert discover_topology(files.get, lambda pid: {2})["effective_domain"] == {"cpus": [2], "mems": [0, 1]}


def test_binding_is_retried_and_read_back():
    from putils.npu_affinity_benchmark import bind_with_retries

    slept, errors = [], [OSError(errno.EPERM, "no"), TimeoutError("late"), None]

    def bind(pid, cpus, timeout_ns=None):
        error = errors.pop(0)
        if error:
            raise error

    how = dict(sleep=slept.append, set_affinity=bind, get_affinity=lambda pid: [2, 3])
    found = bind_with_retries([3, 2, 3], **how)
    assert (found["bind_status"], found["attempts"], slept) == ("ok", 3, [0.1, 0.2])
    assert [f["failure"]["failure_code"] for f in found["failures"]] == ["EPERM", "TIMEOUT"]
    errors, slept = [OSError(errno.EINVAL, "no")] * 4, []
    found = bind_with_retries([9], **{**how, "sleep": slept.append})
    assert (found["bind_status"], found["attempts"], slept) == ("error", 4, [0.1, 0.2, 0.3])
    assert found["failure"]["failure_code"] == "EINVAL" and found["ranking_valid"] is False
    errors = [None] * 4
    found = bind_with_retries([2], sleep=slept.append, set_affinity=bind, get_affinity=lambda pid: [2, 3])
    assert (found["bind_status"], found["mismatch"], found["effective_affinity"]) == ("mismatch", True, [2, 3])


def test_what_is_unstable_is_measured_again():
    from putils.npu_affinity_benchmark.workload import measured_until_stable

    def passes(*milliseconds):
        left = list(milliseconds)
        return lambda: {"samples": [{"latency_ns": int(left.pop(0) * 1e6)}]}

    assert measured_until_stable(passes(1, 1.05))[2] is None
    outcome, numbers, audit = measured_until_stable(passes(1, 2, 1.5))
    assert (numbers["latency_p95_ms"], audit["decision_status"], audit["remeasure_count"]) == (1.5, "accepted", 1)
    outcome, numbers, audit = measured_until_stable(passes(1, 2, 9, 8))
    assert (audit["decision_status"], audit["remeasure_count"]) == ("unstable", 2)
    assert audit["decisions"][0]["trigger_metrics"] == ["throughput", "latency_p95_ms"]


def test_two_leaderboards():
    from putils.npu_affinity_benchmark import build_schema, leaderboards, validate_schema
    from putils.npu_affinity_benchmark.run import describe, report_sheets

    def result(npu, name, throughput, latency, valid=True):
        return {"npu_id": npu, "candidate_id": name, "throughput": throughput, "latency_p95_ms": latency,
                "ranking_valid": valid, "requested_affinity": [0], "effective_affinity": [0],
                "samples": [{"iteration": 0, "latency_ns": 5}]}  # fmt: skip

    results = [result(0, "c000", 100, 2.0), result(0, "c001", 150, 3.0), result(0, "c002", 999, 0.1, False)]
    boards = leaderboards(results)
    assert [r["candidate_id"] for r in boards["throughput"]] == ["c001", "c000"]
    assert [r["candidate_id"] for r in boards["latency_p95_ms"]] == ["c000", "c001"]
    candidates = [{"candidate_id": f"c00{i}", "cpu_list": [i, i + 1]} for i in range(3)]
    failures = [{"npu_id": 0, "candidate_id": "c002", "attempt": 1, "bind_status": "mismatch", "failure": None}]
    payload = validate_schema(build_schema({}, {}, candidates, results, boards, failures, []))
    assert describe(payload) == (
        "Device 0: most products per second on processors 1-2 (150/s, 50 % above the worst); lowest latency on "
        "0-1 (p95 2.000 ms).\n1 of 3 measurements are not in the leaderboards: not bound, or unstable."
    )
    sheets = {s.name: s.rows for s in report_sheets(payload)}
    assert list(sheets) == ["Summary", "Raw", "Best", "Retry-Failures"]
    assert sheets["Best"][1:] == [[0, "throughput", "c001", "1-2", 150], [0, "latency_p95_ms", "c000", "0-1", 2.0]]
    assert sheets["Retry-Failures"][1] == [0, "c002", "bind", 1, "mismatch"]


def test_the_topology_alone(build, tmp_path):
    words = ["-m", "putils.npu_affinity_benchmark", "--dry-run-topology", "--output-dir", tmp_path / "out"]
    done = run(build, *words)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/out/raw_results.json\n"), done
    found = json.loads((tmp_path / "out/raw_results.json").read_text())
    assert list(found) == ["schema_version", "run_metadata", "topology", "candidates", "results",
                           "leaderboards", "failures", "remeasure_events"]  # fmt: skip
    assert found["topology"]["effective_cpus"] == sorted(os.sched_getaffinity(0))
    done = run(build, "-m", "putils.npu_affinity_benchmark", "--profile", "x")
    assert done.returncode == 2 and done.stderr.startswith("ERROR[2] ")


# --- burn, without a card ---


def test_the_slow_card_is_named():
    from putils.burn import describe, slow_cards

    assert slow_cards({0: 100.0, 1: 99.0, 2: 80.0, 3: 101.0}) == [2]
    assert slow_cards({0: 100.0}) == slow_cards({0: 100.0, 1: 91.0}) == []
    assert describe({0: 100.0, 1: 80.0, 2: 101.0}) == (
        "0: 100.0  1: 80.0  2: 101.0 TFLOPS. Card 1 is slow: 20 % below the others"
    )


def test_locks_of_burn_are_our_own(tmp_path):
    from putils import burn

    args = burn.get_args([])
    signature = burn._task_lock_signature(args, "cuda", 8)
    assert re.fullmatch("[0-9a-f]{64}", signature)
    assert signature != burn._task_lock_signature(burn.get_args(["--size", "99"]), "cuda", 8)
    held, path = burn._acquire_task_lock(str(tmp_path), signature)
    assert path == f"{tmp_path}/burn_{signature}.lock" and open(path).read() == f"{os.getpid()}\n"
    assert burn._acquire_task_lock(str(tmp_path), signature) == (None, path)
    os.close(held)
    (tmp_path / "victim").write_text("keep")
    os.unlink(path)
    os.symlink(tmp_path / "victim", path)
    with pytest.raises(OSError):
        burn._acquire_task_lock(str(tmp_path), signature)
    os.unlink(path)
    os.mkfifo(path)
    with pytest.raises(PermissionError):
        burn._acquire_task_lock(str(tmp_path), signature)
    assert (tmp_path / "victim").read_text() == "keep"


def test_a_folder_that_somebody_has_prepared_is_not_used(tmp_path, monkeypatch, capsys):
    from putils import burn, saver

    shared, elsewhere = tmp_path / "tmp", tmp_path / "elsewhere"
    elsewhere.mkdir()
    shared.mkdir()
    shared.chmod(0o1777)
    for module, name in ((saver, "DEFAULT_TMP_DIR"), (burn, "DEFAULT_LOCK_DIR")):
        monkeypatch.setattr(module, name, str(shared / name))
        os.symlink(elsewhere, shared / f"{name}_{os.geteuid()}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(saver.tempfile, "tempdir", None)
    made = saver.AsyncTorchSaver(tmp_dir=saver.DEFAULT_TMP_DIR)
    made.close()
    assert os.path.dirname(made.tmp_dir) == str(tmp_path) and os.stat(made.tmp_dir).st_mode & 0o777 == 0o700
    assert "is a link: it may lead to" in capsys.readouterr().err
    with pytest.raises(PermissionError):
        burn._acquire_task_lock(burn.DEFAULT_LOCK_DIR, "0" * 64)
    assert list(elsewhere.iterdir()) == []
    os.unlink(shared / f"DEFAULT_TMP_DIR_{os.geteuid()}")
    made = saver.AsyncTorchSaver(tmp_dir=saver.DEFAULT_TMP_DIR)
    made.close()
    assert made.tmp_dir == str(shared / f"DEFAULT_TMP_DIR_{os.geteuid()}")


def test_the_folder_of_locks_is_ours_alone(tmp_path, monkeypatch, capsys):
    """/tmp/burn_locks_<uid> can be there before us."""
    from putils import burn

    tmp_path.chmod(0o755)
    monkeypatch.setattr(burn, "DEFAULT_LOCK_DIR", str(tmp_path / "locks"))
    folder = tmp_path / f"locks_{os.geteuid()}"

    def take():
        held, path = burn._acquire_task_lock(burn.DEFAULT_LOCK_DIR, "0" * 64)
        os.close(held)
        os.unlink(path)
        return folder.stat().st_mode & 0o777

    assert take() == 0o700
    folder.chmod(0o755)
    assert take() == 0o700
    for mode in (0o770, 0o777, 0o1777):
        folder.chmod(mode)
        with pytest.raises(PermissionError, match=f"others may write to .*mode {mode:o}.*chmod 700"):
            take()
    monkeypatch.setattr(burn, "burn", lambda *_: 0)
    assert burn.main(["--device", "cpu", "--lock-dir", str(tmp_path / "locks")]) == 1
    assert capsys.readouterr().err.startswith("ERROR[1] others may write to ")
    folder.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
        with pytest.raises(PermissionError, match="belongs to user 65534, not to us"):
            take()


@pytest.mark.parametrize("words", [["--size", "0"], ["--seconds", "-1"], ["--interval", "0"], ["--sleep", "nan"]])
def test_bad_words_for_burn(words, capsys):
    from putils import burn

    with pytest.raises(SystemExit) as stopped:
        burn.get_args(words)
    assert stopped.value.code == 2 and words[0] in capsys.readouterr().err


# --- traces in parts ---

TRACED = """
import glob, json, sys, threading
from putils.trace_manager import TraceManager

def early(): pass
def late(): pass

def counts(path):
    names = [e["name"].split()[0] for e in json.load(open(path))["traceEvents"] if e["ph"] == "X"]
    return names.count("early"), names.count("late")

for fork in (True, False):
    manager = TraceManager(auto_save_interval=None, final_output_file="final.json", use_fork_save=fork)
    with manager:
        early()
        assert manager.save_now("part.json") == "part.json"
        late()
        late()
    manager.stop()
    found = counts("part.json"), counts("final.json")
    assert found == ((1, 0), (0, 2)), (fork, found)
saved = threading.Event()
manager = TraceManager(auto_save_interval=0.01, auto_prefix="auto_")
def save_and_tell(path, save=manager.save_now):
    save(path)
    saved.set()
manager.save_now = save_and_tell
manager.start()
manager.start()
early()
assert saved.wait(20)
manager.stop()
parts = sorted(glob.glob("auto_*.json")) + ["trace_final.json"]
assert parts[0] == "auto_0001.json"
assert sum(counts(p)[0] for p in parts) == 1
for call in (save_and_tell, manager.save):
    try:
        call("x.json")
    except RuntimeError as why:
        assert "call start() first" in str(why)
    else:
        raise AssertionError(call)
print("done")
"""


def test_parts_of_a_trace_hold_every_call_once(build, tmp_path):
    place = pip_packages.need("viztracer")
    env = dict(os.environ, PYTHONPATH=f"{build / 'python'}:{place}")
    done = subprocess.run([sys.executable, "-c", TRACED], env=env, cwd=tmp_path, stdout=subprocess.PIPE, timeout=60)
    assert done.stdout == b"done\n", done


def test_traces_without_viztracer_are_a_word(build, tmp_path):
    code = "import sys\nsys.modules['viztracer'] = None\n"
    code += "from putils.trace_manager import TraceManager\nTraceManager().start()"
    done = run(build, "-c", code, cwd=tmp_path)
    assert done.stderr.endswith("ImportError: TraceManager needs the package viztracer; `sonde stack` needs none\n")


def test_without_torch_functions_run_all_the_same(build, tmp_path):
    code = """
import sys
sys.modules["torch"] = None
from putils.profiling import npu_profiler, profiling_this
calls = []
@npu_profiler("x start")
def work(a, b=1):
    "doc"
    calls.append(a + b)
    return a + b
assert (work(1, b=2), work(3), work.__doc__, work.__name__) == (3, 4, "doc", "work")
with profiling_this(True):
    calls.append(0)
assert calls == [3, 4, 0]
"""
    done = run(build, "-c", code, cwd=tmp_path, MM_ENABLE_PROFILING="1")
    assert done.returncode == 0 and re.fullmatch(r"time cost is: \d+\.\d\d ms\n", done.stdout), done
    assert done.stderr == "[putils] there is no torch: nothing is profiled\n"
    code = "import sys\nsys.modules['torch'] = None\nfrom putils.burn import main\nsys.exit(main([]))"
    done = run(build, "-c", code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "ERROR[1] burn needs the package torch\n")
    done = run(build, "-c", code.replace("burn", "npu_affinity_benchmark"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (12, "ERROR[12] the benchmark needs the package torch\n")
