# SPDX-License-Identifier: MulanPSL-2.0
"""The kill matrix: every victim and every fault of every part, in an order that the seed decides. Each
round is one job with what watches it, one fault at a random moment, and a look at what is left."""

import collections
import itertools
import os
import random
import subprocess
import time
import traceback

import memory_rounds
import monitor_rounds
import stack_rounds
from faults import ON_JOB, ON_OWN, SIGNALS, WORDS
from rounds import Round, Silent

# part: (what runs a round, {victim: faults})
PARTS = {
    "memory": (memory_rounds.run_memory, {
        "job": ON_JOB, "recorder": ON_OWN, "both": ("kill",),
        "recover": ("kill", "term", "stop", "write", "short", "sync", "malloc", "descriptors"),
        "disk": ("full",)}),
    "tree": (memory_rounds.run_memory, {
        "job": SIGNALS, "recorder": ON_OWN, "disk": ("full",)}),
    "train": (memory_rounds.run_memory, {"recorder": ON_OWN, "disk": ("full",)}),
    "host": (memory_rounds.run_memory, {
        "job": ON_JOB, "recorder": (*SIGNALS, "stop", "write", "malloc"), "both": ("kill",)}),
    "monitor": (monitor_rounds.run_monitor, {
        "job": ON_JOB, "recorder": ON_OWN,
        "daemon": (*SIGNALS, "stop", "descriptors", "memory", "malloc")}),
    "trace": (monitor_rounds.run_trace, {
        "job": SIGNALS, "recorder": ON_OWN, "daemon": (*SIGNALS, "stop", "descriptors")}),
    "stack": (stack_rounds.run_stack, {"job": ON_JOB, "sampler": ON_OWN}),
}  # fmt: skip


# A seed means the same rounds with and without root, and whatever parts are asked for.
CELLS = [
    (part, victim, fault)
    for part, (_, victims) in PARTS.items()
    for victim, faults in victims.items()
    for fault in faults
]


def can_mount():
    return os.geteuid() == 0 and os.environ.get("SOAK_NAMESPACE") == "1"


def cell_of(seed, number):
    """Each cell once, then each again in another order."""
    lap, at = divmod(number, len(CELLS))
    order = list(CELLS)
    random.Random(f"{seed}/{lap}").shuffle(order)
    return order[at]


class Tally:
    """What became of the rounds of one part."""

    def __init__(self):
        self.rounds = self.exact = self.loss = self.failed = 0
        self.seconds = 0.0


class Matrix:
    def __init__(self, build, place, seed, say=print):
        self.build, self.place, self.seed, self.say = build, place, seed, say
        self.tallies = collections.defaultdict(Tally)
        self.failed = []  # names of rounds

    def run(self, rounds, parts=None):
        """So many rounds, of these parts only."""
        for number in itertools.count():
            part, victim, _ = cell_of(self.seed, number)
            if rounds <= 0:
                return
            if (not parts or part in parts) and (victim != "disk" or can_mount()):
                self.run_round(number)
                rounds -= 1

    def run_round(self, number):
        began = time.monotonic()
        r = Round(self.build, self.place, self.seed, number, cell_of(self.seed, number))
        tally = self.tallies[r.part]
        verdict = "failed"
        try:
            verdict = PARTS[r.part][0](r)
        except KeyboardInterrupt:
            raise
        except Exception as e:
            self.say(f"\n{describe(r)}: FAILED: {e}")
            for line in r.notes:
                self.say(f"    {line}")
            if not isinstance(e, (AssertionError, Silent)):
                self.say(traceback.format_exc())
            self.say(f"    kept: {r.dir}\n    again: make soak-kill SOAK_ROUND={r.name}", flush=True)
        finally:
            r.close(keep=verdict == "failed")
        seconds = time.monotonic() - began
        tally.rounds += 1
        tally.seconds += seconds
        setattr(tally, verdict, getattr(tally, verdict) + 1)
        if verdict == "failed":
            self.failed.append(r.name)
            return
        calls = f", {r.words.failed} calls failed" if r.fault in WORDS else ""
        late = "" if r.hit else ", the fault came too late"
        self.say(f"{describe(r)}: {verdict}, {seconds:.1f} s{calls}{late}", flush=True)

    def rows(self):
        """For the table: part, rounds, exact, loss, failed, seconds."""
        return [
            (part, t.rounds, t.exact, t.loss, t.failed, t.seconds) for part, t in self.tallies.items()
        ]


def describe(r):
    return f"round {r.name} {r.part}/{r.victim}/{r.fault}"


def can_unshare():
    probe = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    return os.geteuid() == 0 and subprocess.run(probe, capture_output=True).returncode == 0
