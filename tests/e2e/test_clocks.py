# SPDX-License-Identifier: MulanPSL-2.0
"""Hosts whose clocks are wrong: `sonde ctl clocks` measures them, and `sonde timeline` puts what was recorded on
one clock, with a bound that holds."""

import contextlib
import json
import os
import pathlib
import random
import subprocess
import time

import pytest
from capabilities import needs
from daemon import Daemon
from harness import SOAK
from host_clocks import SECOND, T0, Host, largest_error, run_job, write_job, write_trips
from recording import clean_env
from waiting import wait_until

# A wall clock that is wrong: hosts of one machine have the same one, and time namespaces do not shift it.
WRONG_CLOCK = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t which, struct timespec *out)
{
	int r = (int)syscall(SYS_clock_gettime, which, out);
	const char *offset = getenv("WRONG_OFFSET_NS"), *ppb = getenv("WRONG_PPB"), *from = getenv("WRONG_FROM_NS");

	if (r == 0 && which == CLOCK_REALTIME && offset) {
		long long ns = out->tv_sec * 1000000000ll + out->tv_nsec;

		ns += atoll(offset) + (long long)((double)(ns - atoll(from)) * (double)atoll(ppb) / 1e9);
		out->tv_sec = ns / 1000000000;
		out->tv_nsec = ns % 1000000000;
	}
	return r;
}
"""


def make_wrong_clock(tmp_path):
    """The library, for LD_PRELOAD."""
    source, library = tmp_path / "wrong_clock.c", tmp_path / "wrong_clock.so"
    source.write_text(WRONG_CLOCK)
    subprocess.run([needs("cc"), "-shared", "-fPIC", "-o", library, source], check=True)
    return library


class Run:
    def __init__(self, build, tmp):
        self.sonde, self.tmp, self.env = build / "bin/sonde", tmp, clean_env(tmp)

    def timeline(self, *words, out="out.json"):
        """What it says, and the trace."""
        path = self.tmp / out
        command = [self.sonde, "timeline", "--json", "--format=json", "-o", path, *words]
        r = subprocess.run(list(map(str, command)), env=self.env, capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout), json.loads(path.read_text()), r.stderr


@pytest.fixture
def run(build, tmp_path):
    return Run(build, tmp_path)


def check(said, trace):
    """What is stated holds: of marks that were at the same time, and of collectives."""
    bound = said["order_known_from_ns"]
    assert largest_error(trace) <= bound
    meetings = {}
    for e in trace["traceEvents"]:
        if e["name"] == "hcom_allReduce_":
            meetings.setdefault(e["args"]["correlation"], []).append((e["ts"], e["ts"] + e["dur"]))
    assert len(meetings) > 20
    for m in meetings.values():
        assert max(s for s, _ in m) * 1000 <= min(e for _, e in m) * 1000 + bound
    return bound


def three_hosts(pick):
    offset = pick.choice([-1, 1]) * round(10 ** pick.uniform(5, 9.5))
    ppm = pick.uniform(-50, 50)
    return [Host("node1"), Host("node2", offset, ppm), Host("node3", -offset // 3, -ppm)]


def one_run(run, seed):
    pick = random.Random(seed)
    hosts = three_hosts(pick)
    words = write_job(run.tmp / f"job{seed}", run_job(
        hosts, seconds=pick.choice([1, 2]), step_ms=pick.choice([10, 40]), seed=seed,
        ranks_per_host=pick.choice([1, 2]), lost=pick.choice([0, 0.01, 0.05])))  # fmt: skip
    tight = check(*run.timeline(*words)[:2])  # collectives alone
    assert tight < 600_000
    write_trips(run.tmp / "clocks.json", hosts, [T0 - SECOND, T0 + 3 * SECOND], seed)
    both = check(*run.timeline(*words, run.tmp / "clocks.json")[:2])
    assert both <= tight + 1000  # more knowledge makes no bound worse


@pytest.mark.soak
@pytest.mark.deadline(600)
def test_what_is_stated_holds(run):
    for seed in range(100 if SOAK else 10):
        one_run(run, seed)


@pytest.mark.parametrize("seed", range(3))
def test_recordings_that_have_nothing_in_common(run, seed):
    """One host stops before the other begins: every step is like another one, and none is the same."""
    hosts = [Host("node1"), Host("node2", seed * 10**6)]
    middle = T0 + SECOND
    job = [(h, [a for a in activities if (a["startNs"] - h.offset < middle) == (h.name == "node1")])
           for h, activities in run_job(hosts, seconds=2, ranks_per_host=1, seed=seed)]  # fmt: skip
    said, _, err = run.timeline(*write_job(run.tmp / "job", job))
    assert said["order_known_from_ns"] is None and "not clear which collectives" in err


def test_round_trips_alone(run):
    """Hosts that share no collective. What is far from any measurement is less well known."""
    hosts = three_hosts(random.Random(1))
    job = run_job(hosts, seed=1)
    for host, activities in job:
        for a in activities:
            a["commName"] = a.get("commName") and host.name
    words = write_job(run.tmp / "job", job)
    said, trace, err = run.timeline(*words)
    assert said["order_known_from_ns"] is None and [h["from"] for h in said["hosts"]][1:] == ["nothing"] * 2
    write_trips(run.tmp / "clocks.json", hosts, [T0 - SECOND, T0 + 7 * SECOND])
    said, trace, _ = run.timeline(*words, run.tmp / "clocks.json")
    assert [h["from"] for h in said["hosts"]] == ["base", "round trips", "round trips"]
    near = check(said, trace)
    write_trips(run.tmp / "clocks.json", hosts, [T0 - 100 * SECOND])
    said, trace, _ = run.timeline(*words, run.tmp / "clocks.json")
    assert check(said, trace) > 10 * near
    node2 = said["hosts"][1]
    assert trace["sonde"]["hosts"][1] == node2 and node2["round_trips"] == 6


def test_a_clock_that_is_set_is_noticed(run):
    hosts = [Host("node1"), Host("node2", 10**7)]
    job = run_job(hosts, seed=3, lost=0)
    for host, activities in job:
        for a in activities:
            if host.name == "node2" and a["startNs"] > T0 + 3 * SECOND:
                a["startNs"], a["endNs"] = a["startNs"] + 400_000, a["endNs"] + 400_000
    said, trace, _ = run.timeline(*write_job(run.tmp / "job", job))
    check(said, trace)
    assert said["hosts"][1]["uneven_ns"] > 50_000


def test_hosts_that_files_name(run):
    """Traces lie in directories that begin with the host; round trips lie beside their directory."""
    hosts = [Host("node1"), Host("node2.cluster", 5 * 10**8, 20)]
    all_ = run.tmp / "prof"
    for rank, (host, activities) in enumerate(run_job(hosts, ranks_per_host=1, seconds=2)):
        there = all_ / f"{host.name}_{100 + rank}_20261115220000000_sonde"
        there.mkdir(parents=True)
        path = there / f"msmonitor_{100 + rank}_20261115220000000_{rank}.jsonl"
        path.write_text("".join(json.dumps(a, sort_keys=True) + "\n" for a in activities))
        words = [run.sonde, "activity", "export", "--format=chrome", "-o", there / "trace.json", path]
        subprocess.run(list(map(str, words)), check=True, env=run.env, capture_output=True, timeout=60)
        path.unlink()
    hosts[1].name = "node2"  # as it was called
    write_trips(run.tmp / "prof.clocks.json", hosts, [T0, T0 + 2 * SECOND])
    said, trace, _ = run.timeline(all_)
    assert [h["host"] for h in said["hosts"]] == ["node1", "node2.cluster"]
    assert said["hosts"][1]["from"] == "round trips and collectives"
    assert said["order_known_from_ns"] < 200_000 and largest_error(trace) <= said["order_known_from_ns"]


def test_traces_that_are_called_after_their_hosts(run):
    """As gputrace of several hosts leaves them, with the round trips: trace_*.json is enough."""
    hosts = [Host("node1"), Host("10.0.0.2:1799", 10**8, 10)]
    for rank, (host, activities) in enumerate(run_job(hosts, ranks_per_host=1, seconds=1)):
        path = run.tmp / f"msmonitor_{100 + rank}_20261115220000000_{rank}.jsonl"
        path.write_text("".join(json.dumps(a, sort_keys=True) + "\n" for a in activities))
        trace = run.tmp / f"trace_{host.name.replace(':', '-')}_{100 + rank}.json"
        words = [run.sonde, "activity", "export", "--format=chrome", "-o", trace, path]
        subprocess.run(list(map(str, words)), check=True, env=run.env, capture_output=True, timeout=60)
    write_trips(run.tmp / "trace_clocks.json", hosts, [T0, T0 + SECOND])
    said, trace, _ = run.timeline(*sorted(run.tmp.glob("trace_*.json")))
    assert {h["host"] for h in said["hosts"]} == {"node1", "10.0.0.2:1799"}
    assert largest_error(trace) <= said["order_known_from_ns"] < 300_000


def test_words_say_what_is_not_known(run, build):
    hosts = [Host("node1"), Host("node2", -3 * SECOND)]
    words = write_job(run.tmp / "job", run_job(hosts, seconds=1))

    def text(*more):
        command = [build / "bin/sonde", "timeline", "-o", run.tmp / "out.pftrace", *more]
        r = subprocess.run(list(map(str, command)), env=run.env, capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr
        return r.stderr

    said = text(*words)
    assert "2 hosts on the clock of node1" in said and "node2: its clock is " in said
    assert "behind (collectives)" in said and "apart is not known" in said
    (run.tmp / "bad.json").write_text('{"sonde_clocks":1,"trips":[{"by":"x"}]}')
    command = [build / "bin/sonde", "timeline", "-o", run.tmp / "out.pftrace", *words, run.tmp / "bad.json"]
    r = subprocess.run(list(map(str, command)), env=run.env, capture_output=True, text=True, timeout=60)
    assert r.returncode == 1 and "trip 1 has an unexpected value" in r.stderr


# --- daemons in network namespaces, whose wall clocks are wrong ---


@pytest.fixture
def nodes(build, tmp_path):
    library = make_wrong_clock(tmp_path)
    real = time.clock_gettime_ns(time.CLOCK_REALTIME)
    with contextlib.ExitStack() as stack:
        made = []
        for i, (offset, ppm) in enumerate([(0, 0), (3 * SECOND, 50), (-100_000, -50)]):
            socket = pathlib.Path(f"/tmp/sonde_clock_{os.getpid()}_{i}")
            env = dict(LD_PRELOAD=str(library), WRONG_OFFSET_NS=str(offset), WRONG_PPB=str(ppm * 1000),
                       WRONG_FROM_NS=str(real))  # fmt: skip
            stack.callback(socket.unlink, missing_ok=True)
            d = stack.enter_context(Daemon(build, tmp_path, "--control-socket", socket, env=env, namespace=True))
            made.append((d, f"unix:{socket}", Host(f"node{i + 1}", offset, ppm)))
        yield made, real


def ctl(run, *words, status=0):
    r = subprocess.run([str(run.sonde), "ctl", *map(str, words)], env=run.env, capture_output=True, text=True,
                       timeout=60)  # fmt: skip
    assert r.returncode == status, r.stderr
    return r


def test_daemons_with_wrong_clocks(run, nodes):
    """What was measured before and after, and recordings by the same clocks."""
    made, real = nodes
    hosts = ",".join(address for _, address, _ in made)
    file = run.tmp / "clocks.json"
    before = json.loads(ctl(run, "clocks", "--json", "--hostname", hosts, "-o", file).stdout)
    for row, (_, _, host) in zip(before, made):
        truth = host.offset + (time.time_ns() - real) * host.ppm / 1e6
        assert abs(row["ahead_ms"] * 1e6 - truth) < row["bound_ms"] * 1e6 + 20_000
        assert 0 < row["bound_ms"] < 50
    text = ctl(run, "clocks", "--hostname", hosts)
    assert "AHEAD MS" in text.stdout and "differ by up to 3000." in text.stderr
    end = time.monotonic() + 2.2
    wait_until(lambda: time.monotonic() > end, lambda: "time", 30, 0.1)
    ctl(run, "clocks", "--hostname", hosts, "-o", file)
    for _, _, host in made:  # their clocks were wrong by `offset` at `real`
        host.clock = lambda ns, h=host: ns + h.offset + round((ns - real) * h.ppm / 1e6)
    job = run_job([h for _, _, h in made], seconds=2, begin=real)
    for host, activities in job:
        for a in activities:
            a["commName"] = a.get("commName") and host.name
    words = write_job(run.tmp / "job", job)
    trips = json.loads(file.read_text())
    names = {address: host.name for _, address, host in made}
    for t in trips["trips"]:  # all are of this machine
        t["host"] = t["label"] = names[t["label"]]
    file.write_text(json.dumps(trips, separators=(",", ":")))
    said, trace, _ = run.timeline(*words, file)
    assert [h["from"] for h in said["hosts"]] == ["base", "round trips", "round trips"]
    check(said, trace)
    assert abs(said["hosts"][1]["drift_ppm"] - 50) < 1 + said["order_known_from_ns"] / 1e3


def test_traces_of_several_hosts_keep_their_clocks(run, nodes):
    made, _ = nodes
    hosts = ",".join(address for _, address, _ in made)
    trace = ["--iterations", 1, "--start-step", 5, "--log-file", run.tmp / "prof"]
    ctl(run, "nputrace", "--hostname", hosts, *trace, status=3)
    assert len(json.loads((run.tmp / "prof.clocks.json").read_text())["trips"]) == 3 * 8
    ctl(run, "gputrace", "--hostname", hosts, "--log-file", run.tmp / "t.json", status=3)
    assert (run.tmp / "t_clocks.json").exists()
    r = ctl(run, "nputrace", "--hostname", hosts, *trace[:-1], run.tmp / "no/such/prof", status=3)
    assert "are not kept" in r.stderr and "clocks -o FILE" in r.stderr
    ctl(run, "nputrace", "--hostname", made[0][1], *trace[:-1], run.tmp / "one", status=3)
    assert not (run.tmp / "one.clocks.json").exists()
