#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""msmemscope against a real PyTorch on a real NVIDIA GPU. By hand, on a machine that has both.

usage: memory.py --bin BUILD/bin/sonde --python-path BUILD/python [--lib-dir DIR] --out DIR
                 [--wheel FILE] [--only STAGE,…]

Trains a small transformer on CUDA (memory_job.py) and compares what the recording says with what
torch says, to the byte and at every step: pool, driver, snapshots, owners, the line of Python that
allocates most. Provokes refusals of memory and asks `sonde mem oom` why. Operators, accesses, calls
of Python, a compiled model, two processes, shards, the installed wheel: memory_python.py. Measures
what a step costs with and without (memory_cost_job.py). Prints PASS or FAIL for each statement and
writes results.json and what is needed to understand a failure to --out; exits with 1 if anything
failed. Takes about seven minutes.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

from gpu import need_gpu
import memory_python
from memory_dumps import balance, owned_bytes, rows_of

HERE = pathlib.Path(__file__).resolve().parent
JOB = HERE / "memory_job.py"


class Run:
    def __init__(self, args):
        self.args = args
        self.out = pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic()
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sonde_memory_"))
        self.results = []
        self.facts = {}
        self.env = dict(os.environ, PYTHONPATH=os.path.abspath(args.python_path))
        if args.lib_dir:
            self.env["LD_LIBRARY_PATH"] = os.path.abspath(args.lib_dir)

    def check(self, name, good, detail=""):
        self.results.append({"name": name, "pass": bool(good), "detail": str(detail)})
        print(f"{'PASS' if good else 'FAIL'}  {name}: {detail}", flush=True)
        return bool(good)

    def note(self, text):
        print(f"  {time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    def stage(self, name, function, *args):
        self.note(name)
        try:
            return function(*args)
        except Exception as e:
            traceback.print_exc()
            self.check(name, False, f"{type(e).__name__}: {e}")
            return None

    def place(self, name):
        where = self.work / f"{name}_{len(os.listdir(self.work))}"
        where.mkdir()
        return where

    def job(self, role, *options, env=None, wrap=(), file=JOB, python=sys.executable):
        """Runs a role of a job; (what it says about itself, where its files are)."""
        where = self.place(role)
        told = where / "told.json"
        wrap = [word.replace("{where}", str(where)) for word in wrap]
        words = [*wrap, str(python), str(file), role, str(where), str(told), *options]
        done = subprocess.run(
            words, env=env or self.env, capture_output=True, text=True, timeout=200
        )
        (where / "stderr.txt").write_text(done.stderr)
        if done.returncode or not told.exists():
            print(done.stdout[-2000:], done.stderr[-4000:], file=sys.stderr)
            raise RuntimeError(f"the job '{role}' ended with {done.returncode}")
        return json.loads(told.read_text()), where

    def plain(self, words, env=None):
        """What a program says."""
        done = subprocess.run(
            list(map(str, words)), env=env or self.env, capture_output=True, text=True, timeout=200
        )
        if done.returncode:
            raise RuntimeError(f"{words[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def keep(self, where, name):
        """What is needed to understand a failure."""
        for n, path in enumerate(sorted(where.rglob("memscope_dump_*.csv"))[:2]):
            text = path.read_bytes()[:2_000_000]
            (self.out / f"{name}_{n}.csv").write_bytes(text)

    def reconcile(self, *args, **kw):
        return reconcile(self, *args, **kw)

    def sonde(self, *words):
        done = subprocess.run(
            [self.args.bin, *words], env=self.env, capture_output=True, text=True, timeout=100
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"sonde {' '.join(words)}: {done.returncode}: {done.stderr}")
        return done.stdout


def python_lines(row):
    return row["Call Stack(Python)"].splitlines()


# --- stages ---


def reconcile(run, title, options=(), role="train", **kw):
    told, where = run.job(role, *options, **kw)
    rows = rows_of(where)
    steps = balance(rows)
    worst = {"TORCH": 0, "CUDA": 0}
    launched = bool(kw.get("wrap"))  # a preloaded library sees what the pool hands out
    for step in told["steps"]:
        mine = steps.get(step["step"], {"TORCH": -1, "CUDA": -1})
        want = step["allocated" if launched else "requested"]
        worst["TORCH"] = max(worst["TORCH"], abs(mine["TORCH"] - want))
        more = mine["CUDA"] - step["reserved"]  # libraries ask the driver, too
        worst["CUDA"] = max(worst["CUDA"], -more if launched else abs(more))
    rounding = max(s["active"] - s["requested"] for s in told["steps"])
    run.check(
        f"{title}: live blocks equal torch's own sum at every step",
        worst["TORCH"] == 0 and len(steps) >= len(told["steps"]),
        f"{len(told['steps'])} steps, difference {worst['TORCH']} bytes; "
        f"the allocator's rounding adds at most {rounding} bytes",
    )
    run.check(
        f"{title}: driver blocks cover reserved_bytes at every step (without the command: equal)",
        worst["CUDA"] == 0,
        f"difference {worst['CUDA']} bytes",
    )
    run.check(f"{title}: nothing was missed", told["missed"] == 0, told["missed"])
    n = sum(r["Event Type"] == "TORCH" for r in rows)
    run.note(
        f"{n} rows of the pool; importing a note costs {told['us_per_event']:.2f} us "
        f"({told['events']} notes)"
    )
    run.facts[title] = {k: v for k, v in told.items() if k != "steps"}
    return told, where, rows


def train(run):
    told, where, rows = reconcile(run, "default", ["--stacks"])
    largest = max(
        (r for r in rows if r["Event"] == "MALLOC" and r["Event Type"] == "TORCH"),
        key=lambda r: int(r["attr"]["size"]),
    )
    lines = [text for text in python_lines(largest) if "/site-packages/torch/" not in text]
    line = lines[0] if lines else ""
    run.check(
        "the Python line of the largest allocation",
        line.startswith(f"{JOB}({told['largest_line']})"),
        f"{line}; {int(largest['attr']['size'])} bytes",
    )
    for name in ("weight", "gradient", "optimizer_state"):
        owned = owned_bytes(rows, name)
        run.check(
            f"bytes of {name} equal the model's",
            owned == told["model"][name],
            f"{owned} and {told['model'][name]}",
        )
    snapshots = [r for r in rows if r["Event"] == "SNAPSHOT"]
    same = 0
    for want in told["snapshots"]:
        for row in snapshots:
            a = row["attr"]
            if row["Name"] == want["name"]:
                same += all(int(a[k]) == want[k] for k in want if k not in ("name",))
    run.check(
        "snapshot rows equal torch's numbers",
        same == len(told["snapshots"]) > 0,
        f"{same} of {len(told['snapshots'])}",
    )
    text = run.sonde("mem", "show", str(where))
    (run.out / "show.txt").write_text(text)
    show = json.loads(run.sonde("mem", "show", "--json", str(where)))
    (run.out / "show.json").write_text(json.dumps(show, indent=1))
    device_adds_up(run, show, text)
    shutil.copy(where / "stderr.txt", run.out / "train_stderr.txt")


def device_adds_up(run, show, text):
    devices = [gpu for process in show["processes"] for gpu in process["gpus"]]
    good = bool(devices)
    for d in devices:
        parts = [d.get("pool_bytes"), d.get("rest_of_process_bytes"), d.get("others_bytes")]
        known = [p for p in parts if p is not None] + [d.get("not_told_bytes") or 0]
        good = good and sum(known) == d["used_bytes"]
    run.check("pool, driver and other memory add up to what the device has in use", good, devices)
    print(text[: text.find("Still allocated")])


def odd(run):
    told, _, _ = reconcile(run, "threads, a graph, a fork, many windows", role="odd")
    run.check("a forked child ends as it would", told["child"] == 0, told["child"])
    run.check("one thread of ours at most", told["threads"] <= 1, told["threads"])


def refusal(run):
    told, where = run.job("oom")
    found = json.loads(run.sonde("mem", "oom", "--json", str(where)))
    (run.out / "oom.json").write_text(json.dumps(found, indent=1))
    (run.out / "oom.txt").write_text(run.sonde("mem", "oom", str(where)))
    one = found["incidents"][0] if found["incidents"] else {}
    run.check(
        "the refusal is explained",
        one.get("verdict") == "real exhaustion" and one.get("requested_bytes") == told["asked"],
        f"{one.get('verdict')}: {one.get('reason')}",
    )
    run.check(
        "the program got torch's own exception",
        told["exception"] == "OutOfMemoryError" and "Tried to allocate" in told["message"],
        told["message"][:90],
    )
    stack = "".join(one.get("python_stack") or [])
    run.check("it says which line asked", f"{JOB}({told['line']})" in stack, stack[:120])
    largest = (one.get("largest") or [{}])[0]
    run.check(
        "and who holds most",
        largest.get("bytes") == told["hoard"] and largest.get("pool") == "TORCH",
        largest,
    )
    held = one.get("device_memory", {})
    known = held.get("total_bytes") and sum(
        held.get(k) or 0 for k in ("process_bytes", "outside_bytes", "others_bytes", "free_bytes")
    )
    run.check(
        "what the device has is known, and adds up", known == held.get("total_bytes"), held
    )
    names = [r["Name"] for r in rows_of(where) if r["Event"] == "SNAPSHOT"]
    run.check("a snapshot was taken", "OOM_Snapshot" in names, names)
    told, where = run.job("oom_fragmented")
    found = json.loads(run.sonde("mem", "oom", "--json", str(where)))
    (run.out / "oom_fragmented.txt").write_text(run.sonde("mem", "oom", str(where)))
    one = found["incidents"][-1] if found["incidents"] else {}
    run.check(
        "a pool in pieces is told from an empty device",
        one.get("verdict") == "fragmentation",
        f"{one.get('verdict')}: {one.get('reason')}",
    )


def others_history(run):
    told, where = run.job("users_history")
    run.check(
        "a program's own history is left alone",
        told["enabled_after"] and told["notes_kept"] >= told["notes_made"] > 0,
        f"{told['notes_made']} notes made, {told['notes_kept']} kept",
    )
    steps = balance(rows_of(where))
    worst = max(abs(steps[s["step"]]["TORCH"] - s["requested"]) for s in told["steps"])
    run.check("and read all the same, to the byte", worst == 0, f"difference {worst} bytes")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--bin", required=True)
    p.add_argument("--python-path", required=True)
    p.add_argument("--lib-dir", default="")
    p.add_argument("--wheel", default="", help="to be tried in an environment of its own")
    p.add_argument("--out", required=True)
    p.add_argument("--only", default="")
    args = p.parse_args()
    need_gpu("torch")
    args.bin = os.path.abspath(args.bin)
    args.wheel = args.wheel and os.path.abspath(args.wheel)
    run = Run(args)
    msmemscope = str(pathlib.Path(args.bin).with_name("msmemscope"))
    stages = {
        "train": (train,),
        "late": (lambda r: reconcile(r, "recording begins late", ["--late"]),),
        "nostep": (lambda r: reconcile(r, "notes read in between", ["--rare-steps"]),),
        "expandable": (
            lambda r: reconcile(
                r,
                "expandable segments",
                ["--stacks", "--empty-cache"],
                env=dict(r.env, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
            ),
        ),
        "cli": (
            lambda r: reconcile(
                r,
                "under the command",
                ["--launched"],
                wrap=[
                    *(msmemscope, "--collect-mode=deferred", "--output={where}"),
                    "--",
                ],
            ),
        ),
        "odd": (odd,),
        "users": (others_history,),
        "oom": (refusal,),
    }
    stages.update((name, (function,)) for name, function in memory_python.STAGES.items())
    for name, (function,) in stages.items():
        if not args.only or name in args.only.split(","):
            run.stage(name, function, run)
    failed = [r["name"] for r in run.results if not r["pass"]]
    (run.out / "results.json").write_text(
        json.dumps({"results": run.results, "facts": run.facts}, indent=1)
    )
    print(f"{len(run.results) - len(failed)} passed, {len(failed)} failed", flush=True)
    shutil.rmtree(run.work, ignore_errors=True)
    return 1 if failed or not run.results else 0


if __name__ == "__main__":
    sys.exit(main())
