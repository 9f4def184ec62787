# SPDX-License-Identifier: MulanPSL-2.0
"""Rounds with `sonde stack`: its file can be loaded whatever happens, and the job never notices."""

import collections
import json
import signal

from faults import SIGNALS
from rounds import require
from stack_jobs import Jobs
from waiting import wait_until

# Deep and ever changing, in four threads; ends when its standard input does.
RESTLESS = """
import sys, threading, time

def left(n):
    return down(n - 1)

def right(n):
    return down(n - 1)

def down(n):
    if n == 0:
        time.sleep(0.0005)
        return 0
    return (left if time.perf_counter_ns() >> 8 & 1 else right)(n)

def restless():
    while True:
        down(5)

for i in range(3):
    threading.Thread(target=restless, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
sys.exit(5)
"""


def run_stack(r):
    jobs, out = Jobs(r.build, r.dir), r.dir / "trace.json"
    job = r.started(jobs.python(RESTLESS, env=r.env()))
    timed = r.rng.random() < 0.3
    words = ("-p", job.pid, "-o", out, "-i", "0.001", "--all-threads")
    words += ("-d", str(r.rng.uniform(0.1, 0.4))) if timed else ()
    sampler = r.started(jobs.begin(*words, env=r.env()))
    wait_until(lambda: out.exists() or sampler.poll() is not None, "the file")
    r.wait_any_moment(400)
    r.strike(sampler.pid if r.victim == "sampler" else job.pid)
    r.wait_any_moment(200)
    r.lift_faults()
    status, err = end_sampler(r, sampler, timed)
    end_job(r, job)
    verdict = check_file(r, out, status, err)
    r.wait_alone()
    r.check_left_files()
    return verdict


def end_sampler(r, sampler, timed):
    """It ends by itself where its time or its target does; else as a user ends it."""
    if sampler.poll() is None and not timed:
        sampler.send_signal(signal.SIGINT)
    _, err = sampler.communicate(timeout=30)
    r.note(f"the sampler ended with {sampler.returncode}: {err[-500:]}")
    return sampler.returncode, err


def end_job(r, job):
    job.stdin.close()
    status = job.wait(30)
    killed = r.victim == "job" and r.fault in SIGNALS
    # A Python program whose memory is limited may end by that itself.
    starved = r.victim == "job" and r.fault in ("memory", "descriptors")
    require(status == (-SIGNALS[r.fault] if killed else 5) or starved, f"the job ended with {status}")


def check_file(r, out, status, err):
    if not out.exists():
        require(status != 0 and err, f"no file; the sampler ended with {status}: {err}")
        return "loss"
    text = out.read_text()
    try:
        trace, whole = json.loads(text), True
    except ValueError:
        # as the documentation says: one character closes a file whose writer was killed
        trace, whole = json.loads(text + ("}" if text[:1] == "{" else "]")), False
    events = trace if isinstance(trace, list) else trace["traceEvents"]
    opened = check_nesting(events)
    killed = r.victim == "sampler" and r.fault == "kill" and status == -signal.SIGKILL
    r.note(f"{len(events)} events, whole: {whole}, open calls: {opened}, failed calls {r.words.failed}")
    if status == 0:
        require(whole and not opened, f"the sampler ended with 0, and {opened} calls are open")
        return "exact"
    require(killed or err, f"the sampler ended with {status} and said nothing")
    return "loss"


def check_nesting(events):
    """Every E ends the B that was last; gives how many were not ended."""
    stacks = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "B":
            stacks[e["pid"], e["tid"]].append(e["name"])
        elif e["ph"] == "E":
            stack = stacks[e["pid"], e["tid"]]
            require(stack and stack.pop() == e["name"], f"an end without its begin: {e}")
    return sum(map(len, stacks.values()))
