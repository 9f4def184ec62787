#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Device time by module on a real NVIDIA GPU: --attribute against torch.profiler, and its cost.

usage: attribute.py --build DIR --out DIR [--steps N] [--rounds N] [--layers N] [--only times|cost]

DIR has bin/, lib/ and python/: a build, or what tools/device_bundle makes of one. The job is GPT-2 of
transformers with random weights, plain PyTorch. Each statement is a line that ends with PASS or FAIL
and the numbers; the exit status is 1 if one failed. Two to three minutes on an H200.

  1  time of each module, forward and backward, against torch.profiler with record_function from
     hooks of modules: within 2 % for every module with more than 1 % of the time
  2  a step that the host limits: monitor on against monitor on with --attribute, in turn, in one
     process that was started for it (sonde monitor --attribute); at most 3 % more. Beside it what a part of that takes (reports of launches, hooks of
     modules), and how far the same differs from itself
  3  the same step in a process with the monitor that was never on, against one without: no more,
     beside how far two processes without differ
"""

import argparse
import bisect
import collections
import glob
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from gpu import need_gpu

HERE = pathlib.Path(__file__).resolve()
NEAR, SHARE, COST = 2.0, 1.0, 3.0  # percent
MODULES = 4  # that the profiler must know at least, or nothing is compared
COPIES = {"gpu_memcpy", "gpu_memset"}
KINDS = "Kernel,MemCpy,MemSet,Communication"
# What is on besides the monitor: reports of launches, hooks of modules.
WAYS = {
    "monitor": (False, False),
    "the same again": (False, False),
    "launches alone": (True, False),
    "hooks alone": (False, True),
    "--attribute": (True, True),
}
BURST = 8  # steps of one way


# --- the job ---


def request(start, attribute, directory, kinds):
    lines = {
        "NPU_MONITOR_START": start,
        "NPU_MONITOR_STOP": not start,
        "REPORT_INTERVAL_S": 1,
        "DURATION": 0,
        "MSPTI_ACTIVITY_KIND": kinds,
        "NPU_MONITOR_LOG_FILE": directory,
        "NPU_MONITOR_EXPORT_TYPE": "Jsonl" if directory else "DB",
        "JSONL_ROTATE_LOG_LINES": 500000,
        "SONDE_ATTRIBUTE": str(attribute).lower(),
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


class Job:
    """Does what its standard input says, a line for each; answers with a line of JSON."""

    def __init__(self, layers):
        import torch
        import transformers

        self.torch = torch
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            n_layer=layers, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False
        )
        self.model = transformers.GPT2LMHeadModel(config).cuda().train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self.batch(8, 256)

    def batch(self, rows, length):
        self.ids = self.torch.randint(0, 50000, (rows, length), device="cuda")
        self.steps(3)

    def step(self):
        loss = self.model(self.ids, labels=self.ids).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def steps(self, n):
        """Milliseconds of one: a fifth of all are quicker, which leaves what disturbs them out."""
        took = []
        for _ in range(n):
            self.torch.cuda.synchronize()
            began = time.perf_counter()
            self.step()
            self.torch.cuda.synchronize()
            took.append((time.perf_counter() - began) * 1000)
        return sorted(took)[len(took) // 5]

    def calls(self):
        """What the library in this process says when asked about single calls."""
        import ctypes

        with open("/proc/self/maps") as maps:
            path = min({line.split()[-1] for line in maps if "libcupti.so" in line})
        library = ctypes.CDLL(path)
        version = ctypes.c_uint32()
        library.cuptiGetVersion(ctypes.byref(version))
        has = hasattr(library, "cuptiActivityEnableRuntimeApi")
        kind = ctypes.c_int()
        library.cuptiGetThreadIdType(ctypes.byref(kind))
        return {"path": path, "version": version.value, "single calls": has, "ids": kind.value}

    def threads(self):
        return sorted(map(int, os.listdir("/proc/self/task")))

    def monitor(self, start, attribute=False, directory="", kinds=KINDS, hooked=None):
        """hooked: hooks of modules are there although they are not wanted, or the other way round."""
        from sonde import _monitor

        why = _monitor.order(request(start, attribute, directory, kinds))
        hooks = self.torch.nn.modules.module._global_forward_hooks
        end = time.monotonic() + 5
        while start and attribute and not hooks and time.monotonic() < end:
            time.sleep(0.01)
        ours = sys.modules.get("sonde._attribute")
        if ours and (not start or hooked not in (None, attribute)):
            ours._changed(bool(start and hooked))
        known = getattr(ours, "_knows_autograd", None)
        return {"why": why, "hooks": len(hooks), "autograd": known}

    def profile(self, n, path):
        """torch.profiler, and record_function from hooks of modules."""
        torch, profiler = self.torch, self.torch.profiler
        paths = {m: name or type(self.model).__name__ for name, m in self.model.named_modules()}
        open_ranges, undo = [], []

        def before(module, args):
            open_ranges.append(profiler.record_function(f"module {paths.get(module, '?')}"))
            open_ranges[-1].__enter__()

        def after(module, args, result):
            open_ranges.pop().__exit__(None, None, None)

        module = torch.nn.modules.module
        undo.append(module.register_module_forward_pre_hook(before))
        undo.append(module.register_module_forward_hook(after))
        activities = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
        with profiler.profile(activities=activities) as profile:
            for _ in range(n):
                with profiler.record_function("training"):
                    loss = self.model(self.ids, labels=self.ids).loss
                    loss.backward()
                with profiler.record_function("module optimizer"):
                    self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
        for hook in undo:
            hook.remove()
        profile.export_chrome_trace(path)


def run_job(layers):
    job = Job(layers)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        name, args = json.loads(line)
        print(json.dumps(getattr(job, name)(*args)), flush=True)


# --- the reference: a trace of torch.profiler ---


class Ranges:
    """Of one thread: which of them are open at a moment, the innermost last."""

    def __init__(self, events):
        self.events = sorted(events, key=lambda e: (e["ts"], -e["dur"]))
        self.begins = [e["ts"] for e in self.events]

    def around(self, ts):
        found = []
        for e in self.events[max(0, bisect.bisect_right(self.begins, ts) - 400) :]:
            if e["ts"] > ts:
                break
            if e["ts"] + e["dur"] >= ts:
                found.append(e)
        return found


def module_at(ranges, ts):
    names = [e["name"][7:] for e in ranges.around(ts)] if ranges else []
    return names[-1] if names else ""


def by_thread(events):
    threads = collections.defaultdict(list)
    for e in events:
        threads[e["tid"]].append(e)
    return {tid: Ranges(list_) for tid, list_ in threads.items()}


def reference(path):
    """(module, pass): microseconds, of a trace."""
    events = [e for e in json.load(open(path))["traceEvents"] if e.get("ph") == "X"]
    modules = by_thread(
        [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("module ")]
    )
    ops = [e for e in events if e.get("cat") == "cpu_op"]
    engine = [e for e in ops if e["name"].startswith("autograd::engine::evaluate_function")]
    nodes = by_thread(engine)
    forward = {}  # sequence number: the last operation of a forward pass with it
    for e in sorted(ops, key=lambda e: e["ts"]):
        number = e["args"].get("Sequence number")
        if number is not None and not e["args"].get("Fwd thread id"):
            forward.setdefault(number, []).append(e)
    launches = {}
    for e in events:
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e["args"]:
            launches.setdefault(e["args"]["correlation"], e)
    device = [e for e in events if e.get("cat") in {"kernel"} | COPIES]
    before = {}  # thread: the owner of the launch before, for gradients that are added up
    sums = collections.Counter()
    starts = {id(e): launches.get(e["args"].get("correlation")) for e in device}
    for e in sorted(device, key=lambda e: starts[id(e)]["ts"] if starts[id(e)] else 0):
        launch, owner = starts[id(e)], ("?", "")
        if launch is not None:
            tid, ts = launch["tid"], launch["ts"]
            around = nodes[tid].around(ts) if tid in nodes else []
            if around:
                number = around[-1]["args"].get("Sequence number")
                made = [f for f in forward.get(number, ()) if f["ts"] < ts]
                if made and "AccumulateGrad" not in around[-1]["name"]:
                    owner = module_at(modules.get(made[-1]["tid"]), made[-1]["ts"]), "backward"
                else:
                    owner = before.get(tid, ("", "backward"))
                before[tid] = owner
            else:
                owner = module_at(modules.get(tid), ts), "forward"
        sums[owner] += e["dur"]
    return sums


def monitored(directory):
    """The same of the monitor's files; and how many activities, how many without an owner."""
    sums, n, nobody = collections.Counter(), 0, 0
    for path in glob.glob(f"{directory}/*.jsonl"):
        for line in open(path):
            row = json.loads(line)
            if row["kind"] not in KINDS:
                continue
            n += 1
            nobody += "pass" not in row
            owner = (row.get("module", ""), row["pass"]) if "pass" in row else ("?", "")
            sums[owner] += (row["endNs"] - row["startNs"]) / 1000
    return sums, n, nobody


# --- the checks ---


class Control:
    def __init__(self, args, is_monitored, is_prepared=False):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SONDE_", "MSMONITOR_"))}
        words = [sys.executable, str(HERE), "--job", "--layers", str(args.layers)]
        if is_monitored:
            lib = str(args.build / "lib/libsonde_monitor.so")
            env.update(
                SONDE_PREPARE_ATTRIBUTE="1" if is_prepared else "0",
                CUDA_INJECTION64_PATH=lib,
                LD_PRELOAD=lib,
                MSMONITOR_USE_DAEMON="1",
                PYTHONPATH=os.pathsep.join(
                    [str(args.build / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
                ),
                SONDE_MONITOR_DIR=str(args.out / "sessions"),
                KINETO_IPC_SOCKET_DIR=str(args.out / "sockets"),
            )
        self.process = subprocess.Popen(
            words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def wait_until_ready(self):
        assert self.read() == "ready"

    def end(self, seconds):
        self.process.stdin.close()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return f"it did not end within {seconds} s"

    def read(self):
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"the job has ended: {self.process.wait()}")
            try:
                return json.loads(line)
            except ValueError:
                print("job:", line, end="")

    def __call__(self, name, *args):
        self.process.stdin.write(json.dumps([name, args]) + "\n")
        self.process.stdin.flush()
        return self.read()


failed = []


def check(statement, good, numbers):
    print(f"{'PASS' if good else 'FAIL'}  {statement}: {numbers}", flush=True)
    if not good:
        failed.append(statement)


def compare(ours, reference_):
    """Every (module, pass) with more than a percent of the time; what is wrong."""
    total = sum(reference_.values())
    modules = sum(bool(module) and us > total * SHARE / 100 for (module, _), us in reference_.items())
    if modules < MODULES:
        return [f"the profiler has {modules} modules with more than {SHARE} % of the time"]
    print(f"      {'module':44} {'pass':9} {'profiler us':>12} {'sonde us':>12}  percent")
    wrong = []
    for owner, us in reference_.most_common():
        if us < total * SHARE / 100:
            break
        got = ours.get(owner, 0)
        off = (got - us) / us * 100
        print(f"      {owner[0] or '(no module)':44} {owner[1]:9} {us:12.0f} {got:12.0f} {off:+8.2f}")
        if abs(off) > NEAR:
            wrong.append((owner, round(off, 2)))
    return wrong


def explain(args, job):
    """What a library says about single calls, and some rows: for the case that nothing is attributed."""
    rows = [r for p in glob.glob(f"{args.out}/files/*.jsonl") for r in open(p)]
    for row in rows[:2] + rows[len(rows) // 2 : len(rows) // 2 + 2]:
        print("      row:", row.rstrip())
    print("      CUPTI:", job("calls"), flush=True)
    directory = args.out / "calls"
    directory.mkdir(exist_ok=True)
    job("monitor", True, True, str(directory), "Kernel,RuntimeAPI,API")
    job("steps", 2)
    job("monitor", False)
    calls = collections.Counter()
    threads = collections.Counter()
    for path in glob.glob(f"{directory}/*.jsonl"):
        for line in open(path):
            row = json.loads(line)
            calls[row["kind"], row.get("name") if "API" in row["kind"] else "pass" in row] += 1
            if "threadId" in row:
                threads[row["threadId"]] += 1
    print("      with all calls:", calls.most_common(25))
    print("      threads of calls:", dict(threads), "of the process:", job("threads"), flush=True)


def check_times(job, args):
    job("batch", 8, 256)
    job("profile", args.steps, str(args.out / "before.json"))
    print("monitor:", job("monitor", True, True, str(args.out / "files")), flush=True)
    job("steps", args.steps)
    job("monitor", False)
    job("profile", args.steps, str(args.out / "after.json"))
    first, second = (reference(args.out / name) for name in ("before.json", "after.json"))
    want = collections.Counter({k: (first[k] + second.get(k, first[k])) / 2 for k in first})
    ours, n, nobody = monitored(args.out / "files")
    print(f"      {n} activities, {nobody} without an owner")
    share = 100 * (sum(ours.values()) - ours[("?", "")]) / (sum(ours.values()) or 1)
    check("share of the device's time that has an owner", share > 99, f"{share:.2f} %")
    if share <= 99:
        explain(args, job)
    wrong = compare(ours, want)
    check(f"each module and pass within {NEAR} % of the profiler", not wrong, wrong or "all")
    merged = collections.Counter(), collections.Counter()
    for sums, out in ((ours, merged[0]), (want, merged[1])):
        for (module, _), us in sums.items():
            out[(module, "both")] += us
    wrong = compare(*merged)
    check(f"each module within {NEAR} % of the profiler", not wrong, wrong or "all")
    show(args)


def show(args):
    """The answers that a person gets of the same files."""
    for by in ("module", "line"):
        words = [args.build / "bin/sonde", "activity", "show", f"--by={by}", args.out / "files"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        good = done.returncode == 0 and "is attributed" in " ".join(done.stdout.split())
        check(f"activity show --by={by}", good, done.stderr.strip() or "answers")
        print("      " + "\n      ".join(done.stdout.splitlines()[:14]), flush=True)


def check_never_on(job, plain, twin, args):
    """Processes differ by themselves; how much, two that are alike say."""
    rounds = []
    for i in range(args.rounds):
        took = {}
        for each in (plain, job, twin) if i % 2 else (twin, job, plain):
            took[each] = each("steps", args.steps)
        rounds.append((took[job] / took[plain], took[twin] / took[plain]))
    ratio, alike = (statistics.median(r[k] for r in rounds) for k in (0, 1))
    spread = [round((r[0] - 1) * 100, 2) for r in rounds]
    numbers = f"{(ratio - 1) * 100:+.2f} % (without it, another process: {(alike - 1) * 100:+.2f} %) {spread}"
    check("never on costs nothing", ratio - 1 < max(0.01, abs(alike - 1)), numbers)


def measure_ways(job, args):
    """Milliseconds of a step in each way, and what is on in the last one."""
    times, state = collections.defaultdict(list), {}
    for i in range(args.rounds * 2):
        order = list(WAYS.items())
        for name, (launches, hooked) in order if i % 2 else order[::-1]:
            found = job("monitor", True, launches, "", KINDS, hooked)
            state[name] = found
            job("steps", 2)
            times[name].append(job("steps", BURST))
            job("monitor", False)
        times["off"].append(job("steps", BURST))
    return times, state


def compare_ways(times, name):
    """Percent more than the monitor, in the middle; how sure that is; quartiles."""
    more = [(b / a - 1) * 100 for a, b in zip(times["monitor"], times[name])]
    low, middle, high = statistics.quantiles(more, n=4)
    error = 1.25 * statistics.stdev(more) / len(more) ** 0.5
    return middle, f"{middle:+.2f} % (± {error:.2f}; quartiles {low:+.2f} to {high:+.2f})"


def check_cost(job, args):
    times, states = measure_ways(job, args)
    for name, (launches, hooked) in WAYS.items():
        state = states[name]
        on = state["why"][0] == 0 and (state["hooks"] > 0) == hooked
        if not on:
            check(f"{name} is on where its cost is measured", on, state)
    off, on = (statistics.median(times[name]) for name in ("off", "monitor"))
    print(f"      a step: off {off:.3f} ms, monitor {on:.3f} ms; {len(times['off'])} rounds")
    for name in WAYS:
        if name not in ("monitor", "--attribute"):
            print(f"      {name}: {compare_ways(times, name)[1]}")
    cost, numbers = compare_ways(times, "--attribute")
    check(f"--attribute costs at most {COST} %", cost <= COST, numbers)


def check_all(jobs, args):
    for each in jobs:
        each.wait_until_ready()
    if args.only != "times":
        for each in jobs:
            each("batch", 1, 64)
        check_never_on(*jobs[1:], args)
        check_cost(jobs[0], args)
    if args.only != "cost":
        check_times(jobs[0], args)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--out", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--only", choices=("times", "cost"))
    parser.add_argument("--job", action="store_true", help="for this script itself")
    args = parser.parse_args()
    if args.job:
        return run_job(args.layers)
    if not (args.build and args.out):
        parser.error("--build and --out are needed")
    need_gpu("torch", "transformers")
    for name in ("files", "sessions", "sockets"):
        (args.out / name).mkdir(parents=True, exist_ok=True)
    jobs = [Control(args, True, is_prepared=True)]
    if args.only != "times":
        jobs += [Control(args, True), Control(args, False), Control(args, False)]
    patience = 30
    try:
        check_all(jobs, args)
    except Exception as why:  # what has been found out counts
        check("the script", False, f"{type(why).__name__}: {why}")
        patience = 5
    for each in jobs:
        status = each.end(patience)
        check("the job ends well", status == 0, status)
    print(f"{'FAILED: ' + ', '.join(failed) if failed else 'all passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
