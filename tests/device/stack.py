#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""`sonde stack` and `sonde snap` against PyTorch on a real NVIDIA GPU. By hand, where both are.

usage: stack.py --bin build/bin/sonde --out DIR [--only STAGE,...]

Looks at the four ranks of an unmodified training job (steps.py) that train on one GPU and add up
their gradients: where they are, who is stuck, what ran when; compares the timeline with the job's
own clocks and with nvidia-smi; measures what being looked at costs a training process. Prints PASS
or FAIL for each statement, writes results.json and a trace to --out, and exits with 1 if anything
failed. Takes about four minutes.
"""

import argparse
import collections
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import traceback

from gpu import need_gpu
from stack_beside import check_msmemscope, check_native, check_torchrun
from stack_control import IN_BATCH, STAY
from stack_run import STEPS, Run, Watch, check_never_traced, goes_on, release, steps_per_s
from stack_timeline import check_timeline

RANKS = 4
ODD = 2  # the rank that is kept in load_batch()
PARTS = 30  # of each kind when the cost is measured
PART_S = 0.5


# --- one look ---


def check_snap(run, job):
    began = time.monotonic()
    r = run.sonde("snap")
    took = time.monotonic() - began
    first = (r.stdout.splitlines() or [r.stderr])[0]
    run.check(
        "snap finds the ranks by itself",
        r.returncode == 0 and first.startswith("4 ranks: "),
        f"{first} ({took:.2f} s)",
    )
    run.note(r.stdout)
    data = json.loads(run.sonde("snap", "--json").stdout)
    told = {p["pid"]: p["rank"] for p in data["processes"]}
    run.check("with pid and rank of each", told == {p.pid: p.rank for p in job}, told)
    run.check(
        "on their card",
        all(p["device"] == 0 for p in data["processes"]),
        {p["device"] for p in data["processes"]},
    )
    run.check(
        "and the version of Python",
        all(p["python"].startswith("%d.%d." % sys.version_info[:2]) for p in data["processes"]),
        {p["python"] for p in data["processes"]},
    )
    ranks = sorted(rank for place in data["places"] for rank in place["ranks"])
    run.check("every rank is at one place", ranks == list(range(RANKS)), ranks)
    files = {f["file"] for g in data["groups"] for f in g["frames"] if f["home"] == "job"}
    run.check("places are of the job's own file", files == {STEPS}, files)
    run.check(
        "all were looked at within a millisecond",
        0 < data["skew_ns"] < 1e6,
        f"{data['skew_ns'] / 1000:.0f} us",
    )
    r = run.sonde("stack", "--debug-pid-discovery", "-v", "-d", "0.5", "-o", "found.json")
    how = [line for line in r.stderr.splitlines() if "NVML" in line or "nvidia" in line]
    run.check(
        "they are found through NVML",
        any("NVML" in line for line in how),
        " | ".join(how[:2]) or r.stderr[-300:],
    )
    r = run.sonde("snap", "--hang", 2, "--for", 4)
    run.check("a job that trains does not hang", r.returncode == 0, r.stdout.split("\n")[0])


def places_of(run):
    data = json.loads(run.sonde("snap", "--json").stdout)
    return {tuple(p["ranks"]): p["frame"]["name"] for p in data["places"]}


def check_odd(run, job):
    others = [r for r in range(RANKS) if r != ODD]
    with Watch([p.pid for p in job]) as watch:
        job[ODD].control[STAY] = IN_BATCH
        stuck = {tuple(others): "Trainer.reduce_gradients", (ODD,): "Trainer.load_batch"}
        run.wait("all ranks to stand", lambda: places_of(run) == stuck, 10)
        r = run.sonde("snap", "--locals", "load_batch")
        lines = r.stdout.splitlines()
        place = (
            r"4 ranks: 3 in Trainer\.reduce_gradients at steps\.py:\d+ > all_reduce \(.*\), "
            r"1 in Trainer\.load_batch at steps\.py:\d+ \(rank 2\)"
        )
        run.check("the stuck rank is in the first line", re.match(place, lines[0]), lines[0])
        run.check("and said to be elsewhere", lines[1].startswith("Rank 2 is elsewhere"), lines[1])
        run.note(r.stdout)
        step = re.search(r"^ *step = (\d+)$", r.stdout, re.M)
        run.check(
            "its variables are read",
            step and int(step.group(1)) == job[ODD].control[0],
            step and step.group(0).strip(),
        )
        began = time.monotonic()
        r = run.sonde("snap", "--hang", 2)
        took = time.monotonic() - began
        lines = r.stdout.splitlines()
        run.check("--hang 2 ends with status 3", r.returncode == 3, f"{took:.1f} s")
        run.check(
            "and names it first",
            "load_batch" in lines[0]
            and "(rank 2)" in lines[0]
            and lines[1].startswith("Rank 2 has not moved"),
            lines[0],
        )
        run.note("\n".join(lines[:4]))
        release(job[ODD])
    run.check("the job goes on afterwards", goes_on(run, job))
    check_never_traced(run, watch, "snap and --hang")


# --- what it costs ---


def start_sampler(run, p, name, words):
    """It stands still until it is measured."""
    sampler = subprocess.Popen(
        [
            run.args.bin,
            "stack",
            "-p",
            str(p.pid),
            "-i",
            "0.001",
            "-o",
            f"{name}.json",
            "--json",
            *words,
        ],
        cwd=run.work,
        env=run.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    run.started.append(sampler)
    time.sleep(1)
    sampler.send_signal(signal.SIGSTOP)
    return sampler


def end_sampler(sampler):
    sampler.send_signal(signal.SIGCONT)
    sampler.terminate()
    return json.loads(sampler.communicate(timeout=20)[0])


def part(p, sampler):
    if sampler is None:
        return steps_per_s(p, PART_S)
    sampler.send_signal(signal.SIGCONT)
    time.sleep(0.02)
    rate = steps_per_s(p, PART_S)
    sampler.send_signal(signal.SIGSTOP)
    return rate


def check_cost(run, p):
    kinds = {
        "unsampled": None,
        "--all-threads": start_sampler(run, p, "plain", ["--all-threads"]),
        "--all-threads --exact": start_sampler(run, p, "exact", ["--all-threads", "--exact"]),
    }
    rates = collections.defaultdict(list)
    with Watch([p.pid]) as watch:
        for i in range(PARTS):
            order = list(kinds)  # who is first changes: a slow drift cancels
            for name in order[i % 3 :] + order[: i % 3]:
                rates[name].append(part(p, kinds[name]))
    plain = rates["unsampled"]
    quarters = statistics.quantiles(plain, n=4)
    print(
        f"      unsampled: {statistics.median(plain):.1f} steps/s "
        f"(middle half {quarters[0]:.1f} to {quarters[2]:.1f})"
    )
    for name in list(kinds)[1:]:
        s = end_sampler(kinds[name])["sampled"]
        sampled_s = 1 + PARTS * (PART_S + 0.02)
        losses = [100 * (1 - with_ / without) for with_, without in zip(rates[name], plain)]
        quarters = statistics.quantiles(losses, n=4)
        told = (
            f"median loss {statistics.median(losses):.2f} % of {PARTS} pairs (middle half "
            f"{quarters[0]:.1f} to {quarters[2]:.1f}); {s['rounds'] / sampled_s:.0f} rounds/s, "
            f"{s['missed']} of {s['thread_samples']} missed, {s['retried']} retried"
        )
        run.check(
            f"{name} at 1 kHz costs a training process less than 1 %",
            statistics.median(losses) < 1,
            told,
        )
    check_never_traced(run, watch, "1 kHz")


# --- all of it ---


def scenario(run):
    def wanted(*stages):
        return not run.args.only or set(stages) & set(run.args.only.split(","))

    if wanted("snap", "odd", "timeline"):
        run.note("training starts")
        job = run.start_job("ranks", RANKS, "--meet", f"file://{run.work}/meet")
        if run.wait_ready(job):
            if wanted("snap"):
                run.stage("snap", check_snap, job)
            if wanted("odd"):
                run.stage("the odd one", check_odd, job)
            if wanted("timeline"):
                run.stage("timeline", check_timeline, job)
                run.stage("timeline of all threads", check_timeline, job, "--all-threads")
                run.stage("with proof", check_timeline, job, "--all-threads", "--exact")
            run.check("the job still trains", goes_on(run, job))
        run.end_job(job)
    if wanted("native", "cost"):
        run.note("one process starts")
        job = run.start_job("one", 1)
        if run.wait_ready(job):
            if wanted("cost"):
                run.stage("cost", check_cost, job[0])
            if wanted("native"):
                run.stage("native frames", check_native, job[0])
        run.end_job(job)
    if wanted("torchrun"):
        run.stage("torchrun", check_torchrun)
    if wanted("msmemscope"):
        run.stage("msmemscope", check_msmemscope)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the sonde binary")
    parser.add_argument("--out", required=True, help="directory for the results")
    parser.add_argument("--only", help="snap, odd, timeline, cost, native, torchrun, msmemscope")
    args = parser.parse_args()
    need_gpu("torch")
    args.bin = os.path.abspath(args.bin)
    os.makedirs(args.out, exist_ok=True)
    run = Run(args)
    try:
        scenario(run)
    except Exception as e:
        traceback.print_exc()
        run.check("the run as a whole", False, f"{type(e).__name__}: {e}")
    finally:
        status = run.finish()
    return status


if __name__ == "__main__":
    sys.exit(main())
