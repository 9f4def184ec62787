# SPDX-License-Identifier: MulanPSL-2.0
"""For stack.py: native frames, jobs that sonde itself starts, and memory with Python stacks."""

import collections
import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from stack_run import STEPS, release, steps_per_s
from stack_timeline import Trace, keep
from stack_control import IN_SCALE, STAY

# Memory of the host, a lot of it from C++, and an exit status of its own.
ON_CPU = """
import sys, torch

def make_batches(n):
    return [torch.randn(64, 256) for _ in range(n)]

def train(batches):
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in batches:
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()

torch.manual_seed(1)
torch.set_num_threads(2)
print("loss %.6f" % train(make_batches(200)))
sys.exit(7)
"""


# --- C and C++ ---


def is_torch(name):
    return re.search(r"\b(torch|at|c10)::|THP|^cu[A-Z]|^cuda", name)


def check_between(run, p):
    """C++ that has called a function of Python, which waits."""

    def look():
        r = run.sonde("snap", "--native", "-t", 0, "-p", p.pid, "--json")
        frames = json.loads(r.stdout)["groups"][0]["frames"]
        look.frames = [(f["kind"], f["name"]) for f in reversed(frames)]
        return ("python", "Scale.forward") in look.frames

    p.control[STAY] = IN_SCALE
    run.wait("the function that waits", look, 10)
    release(p)
    names = [name for _, name in look.frames]
    here = names.index("Scale.forward") if "Scale.forward" in names else 0
    kinds = [kind for kind, _ in look.frames[:here]]
    run.check(
        "C++ is between two functions of Python",
        here
        and kinds[-1] == "native"
        and "python" in kinds
        and any(is_torch(name) for name in names[:here]),
        " > ".join(names)[-400:],
    )


def check_native(run, p):
    rate = steps_per_s(p, 3)
    began = time.monotonic()
    r = run.sonde("snap", "--native", "-t", 0, "-p", p.pid, "--all-threads", "--json")
    took = time.monotonic() - began
    groups = json.loads(r.stdout)["groups"]
    frames = [f for g in groups for f in g["frames"]]
    kinds = collections.Counter(f["kind"] for f in frames)
    run.check(
        "snap --native",
        r.returncode == 0 and kinds["native"] and kinds["python"],
        f"{dict(kinds)}, {took:.2f} s",
    )
    r = run.sonde(
        "stack",
        "--native",
        "-i",
        "0.02",
        "-d",
        5,
        "-o",
        "native.json",
        "--json",
        "-p",
        p.pid,
        timeout=90,
    )
    told = json.loads(r.stdout)
    s = told["sampled"]
    run.check(
        "stack --native: native frames are found in most rounds",
        s["rounds"] > 50 and s["native_failed"] <= s["thread_samples"] / 10,
        f"{s['rounds']} rounds, {s['native_failed']} without, {s['skipped_ticks']} ticks "
        f"skipped, {100 * told['cpu_s'] / told['seconds']:.0f} % of a core",
    )
    trace = Trace(run.work / "native.json")
    names = {k[2] for k in trace.time}
    torch = sorted(n for n in names if is_torch(n))
    run.check(
        "functions of PyTorch and CUDA are among them",
        len(torch) > 20,
        f"{len(torch)}: " + ", ".join(n[:50] for n in torch[:6]),
    )
    run.check(
        "CUDA's own",
        any(re.match(r"cu[A-Z]|cuda[A-Z]", n) for n in names),
        sorted(n for n in names if re.match(r"cu[A-Z]|cuda[A-Z]", n))[:6],
    )
    forward = [n for n in trace.nested if n[2] == "Scale.forward"]
    run.check(
        "the timeline has C++ between two functions of Python",
        any(is_torch(" ".join(n[1])) for n in forward),
        forward[0] if forward else sorted(trace.nested)[:2],
    )
    run.check("balanced", not trace.unbalanced and not trace.backwards)
    keep(run, run.work / "native.json")
    check_between(run, p)
    threads = [pathlib.Path(f).read_text() for f in glob.glob(f"/proc/{p.pid}/task/*/status")]
    run.check(
        "nobody is left traced or stopped",
        all("TracerPid:\t0" in t and not re.search(r"State:\s+[tT]", t) for t in threads),
        f"{len(threads)} threads",
    )
    later = steps_per_s(p, 3)
    run.check(
        "and the process trains as before",
        later > 0.8 * rate,
        f"{later:.1f} steps/s, before {rate:.1f}",
    )


# --- beside jobs ---


def check_torchrun(run):
    began = time.monotonic()
    r = run.sonde(
        "stack",
        "run",
        "-i",
        "0.01",
        "-o",
        "run.json",
        "--json",
        "--",
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        2,
        STEPS,
        "--control",
        run.work / "torchrun",
        "--meet",
        "env://",
        "--steps",
        200,
        timeout=120,
    )
    run.check(
        "stack run -- torchrun: the job's output and status",
        r.returncode == 0 and r.stdout.count("done after 200 steps, finite: True") == 2,
        f"{time.monotonic() - began:.1f} s; {r.stdout[-300:] if r.returncode else ''}",
    )
    trace = Trace(run.work / "run.json")
    found = {k[0] for k in trace.time if k[2] == "Trainer.train_step"}
    run.check(
        "both ranks are in the timeline, from their imports on",
        len(found) == 2
        and not trace.unbalanced
        and all(any(k[0] == pid and k[2] == "_find_and_load" for k in trace.time) for pid in found),
        [trace.processes[pid] for pid in sorted(trace.processes)],
    )


def check_msmemscope(run):
    script = run.work / "on_cpu.py"
    script.write_text(ON_CPU)
    recorder = pathlib.Path(run.args.bin).parent / "msmemscope"
    if not recorder.exists():
        run.note("no msmemscope beside sonde")
        return
    out = run.work / "memory"
    words = [sys.executable, str(script)]
    began = time.monotonic()
    plain = subprocess.run(words, capture_output=True, text=True, env=run.env, timeout=120)
    took = time.monotonic() - began
    began = time.monotonic()
    r = subprocess.run(
        [
            *[str(recorder), "--call-stack=python:10", "--device=cpu", "--log-level=info"],
            *["-o", str(out), "--", *words],
        ],
        capture_output=True,
        text=True,
        env=run.env,
        timeout=240,
    )
    run.check(
        "msmemscope --call-stack=python: status and output are those of the job",
        (r.returncode, r.stdout, r.stderr) == (7, plain.stdout, plain.stderr)
        and plain.returncode == 7
        and plain.stdout,
        f"{r.returncode} {r.stdout.strip()!r} {r.stderr[-300:]!r}, "
        f"{time.monotonic() - began:.1f} s, plain {took:.1f} s",
    )
    check_dump(run, out)


def check_dump(run, out):
    """The whole of it is gigabytes: importing PyTorch is millions of allocations."""

    def log():
        return "".join(pathlib.Path(f).read_text() for f in glob.glob(f"{out}/rec*/*.log"))

    run.wait("the recorder", lambda: "processor time" in log(), 60)
    run.note(log()[-700:])
    rows = {b"on_cpu.py": 0, b"make_batches": 0}
    size = 0
    for path in glob.glob(f"{out}/**/memscope_dump_*.csv", recursive=True):
        size += os.path.getsize(path)
        with open(path, "rb") as f:
            for line in f:
                for word in rows:
                    rows[word] += word in line
    run.check(
        "and the script's functions are in the dump",
        all(rows.values()),
        f"{size / 1e6:.0f} MB, {rows}",
    )
