# SPDX-License-Identifier: MulanPSL-2.0
"""A job on hosts whose clocks are wrong by a known amount: files of activities as its ranks write them, and
round trips as they are measured. Marks called "truth N" are at the same real time on all hosts."""

import json
import random

T0 = 1794723775000000000
SECOND = 10**9


class Host:
    """A wall clock that is `offset` ns ahead at T0 and gains `ppm` µs per second."""

    def __init__(self, name, offset=0, ppm=0.0):
        self.name, self.offset, self.ppm = name, offset, ppm

    def clock(self, real):
        return real + self.offset + round((real - T0) * self.ppm / 1e6)


def run_job(hosts, ranks_per_host=2, seconds=6.0, step_ms=40, seed=0, lost=0.01, begin=T0):
    """Lists of activities by rank, by the clocks of their hosts."""
    pick = random.Random(seed)
    ranks = [(h, []) for h in hosts for _ in range(ranks_per_host)]
    first = [begin + pick.randrange(SECOND // 2) for _ in ranks]
    last = begin + round(seconds * SECOND)
    real, step = begin, 0
    while real < last:
        ready = [real + round(step_ms * 1e6 * pick.uniform(0.95, 1.05)) for _ in ranks]
        for k in range(6):
            begun = [max(r, real) + pick.randrange(5000, 400000) for r in ready]
            done = max(begun) + 60000 + 2000 * k
            for i, (host, out) in enumerate(ranks):
                end = done + pick.randrange(100, 6000)
                ready[i] = end
                if begun[i] < first[i] or pick.random() < lost:
                    continue
                out.append(dict(kind="Communication", name="hcom_allReduce_", dataType="FP32",
                                startNs=host.clock(begun[i]), endNs=host.clock(end), streamId=9,
                                deviceId=i, count=1 << 20, commName="world", algType="RING",
                                correlationId=6 * step + k + 1))
            # one whose root is done before the others begin says nothing about clocks
            for i, (host, out) in enumerate(ranks):
                at = ready[i] + i * 3000000
                out.append(dict(kind="Communication", name="hcom_broadcast_", dataType="FP32",
                                startNs=host.clock(at), endNs=host.clock(at + 1000), streamId=10,
                                deviceId=i, count=64, commName="world", algType="RING",
                                correlationId=10**6 + 6 * step + k))
        real, step = max(ready), step + 1
    for number in range(8):
        at = begin + round(seconds * SECOND * (0.1 + 0.1 * number))
        for i, (host, out) in enumerate(ranks):
            ns = host.clock(at)
            out.append(dict(kind="Marker", sourceKind="Host", name=f"truth {number}", startNs=ns, endNs=ns,
                            domain="default", id=10**7 + number, processId=100 + i, threadId=100 + i))
    return [(h, out) for h, out in ranks]


def write_job(directory, job):
    """A directory for each host; the words for `sonde timeline`."""
    words = []
    for rank, (host, activities) in enumerate(job):
        there = directory / host.name
        there.mkdir(parents=True, exist_ok=True)
        path = there / f"msmonitor_{100 + rank}_2026111522000000{rank % 10}_{rank}.jsonl"
        lines = [json.dumps(a, sort_keys=True) for a in activities]
        path.write_text("\n".join(lines) + "\n")
        if f"{host.name}={there}" not in words:
            words.append(f"{host.name}={there}")
    return words


def write_trips(path, hosts, times, seed=0):
    """As somebody measures them at these real times, whose own clock counts from its start."""
    pick, trips = random.Random(seed), []
    for real in times:
        for host in hosts:
            for _ in range(6):
                there, back = pick.randrange(20000, 300000), pick.randrange(20000, 300000)
                asked = real - T0 + 10**12
                trips.append(dict(by="them", host=host.name, label=host.name, asked_ns=asked,
                                  answered_ns=asked + there + back, time_ns=host.clock(real + there)))
                real += 10**6
    path.write_text('{"sonde_clocks":1,"trips":' + json.dumps(trips) + "}")


def truths(trace):
    """{mark: [(µs, host's pid), …]} of a Chrome trace."""
    found = {}
    for e in trace["traceEvents"]:
        if e["name"].startswith("truth "):
            found.setdefault(e["name"], []).append((e["ts"], e["pid"]))
    return found


def largest_error(trace):
    """By how many ns marks of the same time are apart."""
    return max(max(t for t, _ in v) - min(t for t, _ in v) for v in truths(trace).values()) * 1000
