# SPDX-License-Identifier: MulanPSL-2.0
"""tests/device: what needs a GPU says so where there is none, and one program runs all of it."""

import importlib
import json
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parents[1] / "device"
# Each with what it is called with; the others in the folder are parts of these.
SCRIPTS = {
    "activity.py": ["--build"],
    "attribute.py": ["--build"],
    "cuda_cost.py": ["--bin"],
    "cuda_first.py": ["--bin"],
    "cuda_memory.py": ["--bin"],
    "kineto.py": ["--bin"],
    "memory.py": ["--bin", "--python-path"],
    "putils.py": ["--bin"],
    "record_cost.py": ["--bin"],
    "run_all.py": ["--build"],
    "stack.py": ["--bin"],
}


def call(build, tmp_path, script, **env):
    words = [sys.executable, HERE / script, "--out", tmp_path / "out"]
    for option in SCRIPTS[script]:
        words += [option, build / "bin/sonde" if option == "--bin" else build]
    env = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **env}
    return subprocess.run(
        words, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_a_gpu(build, tmp_path, script):
    """One sentence, at once, and nothing is left behind."""
    done = call(build, tmp_path, script, LD_LIBRARY_PATH=str(build / "sim"), SIM_GPU_COUNT="0")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("cannot run here: ") and done.stderr.count("\n") == 1
    assert not done.stdout and not (tmp_path / "out").exists()


def on_simulated_gpu(build, tmp_path, script, stages, sonde):
    """A script whose stages need the driver and no framework."""
    words = [sys.executable, HERE / script, "--bin", sonde, "--out", tmp_path / "out", "--only", stages]
    if script == "cuda_memory.py":
        words += ["--target", build / "targets" / "cuda_memory"]
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "LD_LIBRARY_PATH": str(build / "sim"),
        "SIM_GPU_COUNT": "1",
        "SIM_GPU_STATE": str(tmp_path / "gpus"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(
    "script, stages, passed", [("cuda_memory.py", "kinds,nvml,kill,reset", 10), ("cuda_first.py", "empty", 1)]
)
def test_on_a_simulated_gpu(build, tmp_path, script, stages, passed):
    """As far as it goes without a framework: all of it passes …"""
    done = on_simulated_gpu(build, tmp_path, script, stages, build / "bin/sonde")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASS  ") == passed and "FAIL" not in done.stdout


def test_they_fail_when_they_should(build, tmp_path):
    """… and nearly nothing does where blocks are not recorded."""
    blind = tmp_path / "bin"
    blind.mkdir()
    (blind / "sonde").symlink_to(build / "bin/sonde")
    (blind / "msmemscope").write_text(f'#!/bin/sh\nexec {build}/bin/msmemscope --device=gpu:7 "$@"\n')
    (blind / "msmemscope").chmod(0o755)
    done = on_simulated_gpu(build, tmp_path, "cuda_memory.py", "kinds,nvml,reset", blind / "sonde")
    assert done.returncode == 1, done.stdout + done.stderr
    # what a job prints is the same, whether it is recorded or not
    assert done.stdout.count("FAIL  ") == 6 and done.stdout.count("results are the same") == 3


FAKES = {
    "good.py": "print('PASS  a thing: 1')\nprint('    0.1 s  another: ok (2)')",
    "bad.py": "import sys\nprint('PASS  a')\nprint('FAIL  b: 3 is not 4')\nsys.exit(1)",
    "crash.py": "print('PASS  a')\nraise RuntimeError('it broke')",
    "silent.py": "",
    "counted.py": "print('FAILED one')\nprint('7 passed, 1 failed')",
    "hangs.py": "import time\nprint('SKIP  x', flush=True)\ntime.sleep(60)",
}
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import run_all
where, sys.argv = sys.argv[2], sys.argv[2:]
run_all.PARTS = {name: (name, [(f"{where}/{name}.py", ("--out", "{out}"), 2)])
                 for name in ("good", "bad", "crash", "silent", "counted", "hangs")}
sys.exit(run_all.main())
"""


def test_all_of_them(build, tmp_path):
    """The table says what passed, failed, broke, said nothing and did not end."""
    for name, text in FAKES.items():
        (tmp_path / name).write_text(text)

    def run(*parts):
        words = [sys.executable, "-c", RUN, HERE, tmp_path, "--build", build, "--out", tmp_path / "out"]
        return subprocess.run(
            [*words, "--part", ",".join(parts)],
            env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(build / "sim"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=60,
        )

    done = run("good")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(*(name[:-3] for name in FAKES))
    assert done.returncode == 1, done.stderr
    table = done.stdout[done.stdout.index("\npart ") :].splitlines()
    words = [line.split() for line in table]
    rows = {w[0]: w[3:] for w in words if len(w) > 5 and w[0] + ".py" in FAKES}
    assert {name: words[:3] for name, words in rows.items()} == {
        "good": ["2", "0", "0"],
        "bad": ["1", "1", "0"],
        "crash": ["1", "0", "0"],
        "silent": ["0", "0", "0"],
        "counted": ["7", "1", "0"],
        "hangs": ["0", "0", "1"],
    }
    said = {name: " ".join(words[3:]) for name, words in rows.items()}
    assert said["good"] == said["counted"] == "" and said["bad"] == said["crash"] == "exit status 1"
    assert said["hangs"] == "did not end within 2 s" and "could be counted" in said["silent"]
    assert any("3 is not 4" in line for line in table) and "it broke" in done.stdout


# What record_cost.py measures: a job whose steps take their time, and a sonde that makes them slower.
COSTLY_JOB = """
import os, sys, time
print("cost ready", flush=True)
for line in sys.stdin:
    begin = time.perf_counter()
    for _ in range(int(line)):
        end = time.perf_counter() + 0.002 * float(os.environ.get("SLOWER", "1"))
        time.sleep(0.0005)
        while time.perf_counter() < end: pass
    print(f"cost {(time.perf_counter() - begin) * 1e3 / int(line):.4f}", flush=True)
"""
COSTLY_SONDE = """#!{python}
import json, os, pathlib, subprocess, sys
out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1]) / "recording_1"
out.mkdir(parents=True)
status = subprocess.call(sys.argv[sys.argv.index("--") + 1 :], env=dict(os.environ, SLOWER="{slower}"))
answer = dict(running=False, events=10, activities=10, stack_samples=10, lost_events=0, lost_activities=0,
              lost_stack_samples=0, unreadable_processes=0)
(out / "answer.json").write_text(json.dumps({{**answer, **{more}}}))
sys.exit(status)
"""
COST = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import record_cost
record_cost.need_gpu = lambda *_: None
record_cost.JOB = pathlib.Path(sys.argv[2])
record_cost.JOBS = {"fake": ("x", 6.0, 5, "json")}
sys.argv = sys.argv[2:]
sys.exit(record_cost.main())
"""


@pytest.mark.parametrize(
    "slower, more, failed",
    [(1, {}, ""), (1.3, {}, "fake, sonde record"), (1, {"activities": 0}, "fake, recorded"),
     (1, {"lost_events": 3}, "fake, recorded"), (1, {"unreadable_processes": 1}, "fake, recorded")],
)  # fmt: skip
def test_the_cost_of_a_recording(tmp_path, slower, more, failed):
    """It fails if a step takes too much longer, and if something is missing in what was recorded."""
    (tmp_path / "job.py").write_text(COSTLY_JOB)
    sonde = tmp_path / "sonde"
    sonde.write_text(COSTLY_SONDE.format(python=sys.executable, slower=slower, more=more))
    sonde.chmod(0o755)
    words = [sys.executable, "-c", COST, HERE, tmp_path / "job.py", "--bin", sonde, "--out", tmp_path / "out",
             "--minutes", "0.01"]  # fmt: skip
    done = subprocess.run(
        words, env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, timeout=60
    )
    fails = {line[4:].split(":")[0].strip() for line in done.stdout.splitlines() if line.startswith("FAIL")}
    assert fails == ({failed} if failed else set()), done.stdout + done.stderr
    assert done.returncode == bool(failed) and (tmp_path / "out/record_cost.json").exists()
    assert done.stdout.count("PASS  fake") + done.stdout.count("FAIL  fake") == 3  # the cost, and two groups


def a_trace(path, modules):
    """As torch.profiler writes it: the forward of each module launches one kernel, and the gradient of its
    operation another one of twice its time."""
    events, ts = [], 1000
    for number, (name, us) in enumerate(modules.items()):
        forward = {"ph": "X", "cat": "user_annotation", "name": f"module {name}", "tid": 1, "ts": ts, "dur": 50}
        op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 1, "ts": ts + 5, "dur": 20}
        op["args"] = {"Sequence number": number}
        events += [{**forward, "args": {}}, op]
        node = {"ph": "X", "cat": "cpu_op", "name": "autograd::engine::evaluate_function: MmBackward0"}
        node.update(tid=2, ts=ts + 5000, dur=20, args={"Sequence number": number, "Fwd thread id": 1})
        events.append(node)
        for k, (tid, at) in enumerate(((1, ts + 10), (2, ts + 5010))):
            args = {"correlation": 2 * number + k}
            events.append(
                {"ph": "X", "cat": "cuda_runtime", "name": "launch", "tid": tid, "ts": at, "dur": 2, "args": args}
            )
            kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "tid": 7, "ts": at + 3, "dur": us * (1 + k)}
            events.append({**kernel, "args": args})
        ts += 100
    path.write_text(json.dumps({"traceEvents": events}))


def files_of_a_monitor(path, modules):
    rows = []
    for name, us in modules.items():
        for k, which in enumerate(("forward", "backward")):
            row = {"kind": "Kernel", "startNs": 0, "endNs": us * 1000 * (1 + k), "module": name, "pass": which}
            rows.append(json.dumps(row))
    path.mkdir()
    (path / "a.jsonl").write_text("\n".join(rows))


def test_device_time_by_module_is_judged(tmp_path, monkeypatch):
    """What tests/device/attribute.py compares: it fails if one module is off, missing, or if nothing could
    be compared."""
    monkeypatch.syspath_prepend(str(HERE))
    attribute = importlib.import_module("attribute")
    modules = {f"h.{i}.mlp": 100 + 10 * i for i in range(5)}
    a_trace(tmp_path / "trace.json", modules)
    want = attribute.reference(tmp_path / "trace.json")
    assert want == {(m, p): us * n for m, us in modules.items() for p, n in (("forward", 1), ("backward", 2))}

    def wrong(**changed):
        place = tmp_path / "-".join(("files", *changed))
        files_of_a_monitor(place, {**modules, **{k.replace("_", "."): v for k, v in changed.items()}})
        sums, n, nobody = attribute.monitored(place)
        assert n == 10 and nobody == 0
        return {owner for owner, _ in attribute.compare(sums, want)}

    assert not wrong()
    assert wrong(h_1_mlp=113) == {("h.1.mlp", "forward"), ("h.1.mlp", "backward")}
    assert attribute.compare({}, want) and attribute.compare(want, {})
    assert attribute.compare(want, {("?", ""): 1000.0, ("h.0.mlp", "forward"): 20.0})
