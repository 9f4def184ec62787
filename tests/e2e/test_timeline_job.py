# SPDX-License-Identifier: MulanPSL-2.0
"""A job of four ranks with everything on, memory recorded and steps traced: one timeline, in the real Perfetto UI."""

import collections
import json
import os
import pathlib
import signal
import subprocess

import pytest
from browser import Browser
from monitored import environment
from test_timeline import Ui, path_of, query, read
from traced_steps import daemon_for
from waiting import wait_until

RANKS, STEPS = 4, 3


@pytest.fixture(scope="module")
def made(build, tmp_path_factory):
    tmp = tmp_path_factory.mktemp("job")
    faults = ["--fault", "leak", "--fault", "late", "--fault", "oom"]
    with daemon_for(build, tmp) as node:
        env = {k: v for k, v in environment(build, node.daemon).items() if k != "RANK"}
        words = [build / "bin/msmemscope", "--report=off", "--format=none", "--output=rec"]
        words += ["--events=alloc,free,launch,access", "--analysis=leaks,inefficient,oom", "--call-stack=c:8", "--"]
        words += [build / "sim/simtrain", "--quiet", "--aten", "--ranks", RANKS, "--step-ms", 20, "--forever"]
        job = subprocess.Popen(list(map(str, [*words, *faults])), env=env, cwd=tmp, stdout=subprocess.DEVNULL)
        try:
            listed = lambda: node.daemon.call({"fn": "listProcesses"})["processes"]
            wait_until(lambda: len(listed()) == RANKS, "ranks")
            wait_until(lambda: min(p["current_step"] for p in listed()) > 12, "steps")  # leaks are sure then
            options = ["--activities", "CPU,NPU", "--msprof-tx", "--profile-memory", "--host-sys", "cpu,mem"]
            answer, out = node.order(*options, start=-1, steps=STEPS)
            assert answer["commandStatus"] == "effective", answer
            node.traces(out, RANKS)
        finally:
            for p in listed():
                os.kill(p["pid"], signal.SIGKILL)
            job.kill()
            job.wait()

    def timeline(name, *words):
        command = [build / "bin/sonde", "timeline", "--json", "-o", tmp / name, *words, tmp / "rec", out]
        r = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, cwd=tmp)
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)

    counts = timeline("all.pftrace")
    same = timeline("all.json", "--format=json")
    for key in ("slices", "instants", "counters", "arrows", "left_out", "processes", "first_ns", "last_ns"):
        assert counts[key] == same[key], key
    return collections.namedtuple("Made", "tmp counts")(tmp, counts)


@pytest.fixture(scope="module")
def packets(made):
    return read(made.tmp / "all.pftrace")


def names_below(packets, *path):
    """Names of the events of the track with this path, of each process."""
    tracks, events = packets
    found = [u for u in tracks if path_of(tracks, u)[1:] == list(path)]
    return {path_of(tracks, u)[0].split(" · ")[0]: [e[3] for e in events if e[0] == u and e[3]] for u in found}


def test_every_packet(made, packets):
    tracks, events = packets
    kinds = collections.Counter(e[2] for e in events)
    assert (kinds[1], kinds[3], kinds[4]) == tuple(made.counts[k] for k in ("slices", "instants", "counters"))
    assert kinds[2] == kinds[1] and len(tracks) == made.counts["tracks"] and made.counts["left_out"] == 0
    top = sorted((t for t in tracks.values() if not t[1]), key=lambda t: t[2])
    assert [t[0].split(" · ")[0] for t in top] == [f"rank {r}" for r in range(RANKS)]
    assert all("· simtrain --quiet" in t[0] for t in top)


def test_what_each_rank_has(made, packets):
    tracks, _ = packets
    groups = collections.defaultdict(dict)
    for t in tracks.values():
        if t[1] and not tracks[t[1]][1]:
            groups[tracks[t[1]][0].split(" · ")[0]][t[0]] = t[2]
    for rank in range(RANKS):
        mine = sorted(groups[f"rank {rank}"], key=groups[f"rank {rank}"].get)
        wanted = ["steps", "traced steps", f"device {rank}, rank {rank}", "memory", "host", "marks", "counters"]
        assert [g for g in mine if g != "out of memory"] == wanted
    assert names_below(packets, "traced steps")["rank 2"][0].startswith("ProfilerStep#")
    assert made.counts["arrows"] > RANKS * STEPS * 10


def test_findings_are_instants(packets):
    found = names_below(packets, "memory", "findings")
    assert set(found) == {f"rank {r}" for r in range(RANKS)}
    assert all(any(n.startswith("peak of device ") for n in names) for names in found.values())
    assert any(n.startswith("leak begins: ") and "leak_one_buffer" in n for n in found["rank 0"])
    assert any(n.startswith("freed too late: ") and "use_buffer_once" in n for n in found["rank 0"])
    assert not any("leak" in n for r in (1, 2, 3) for n in found[f"rank {r}"])
    assert names_below(packets, "out of memory") == {"rank 0": ["out of memory"] * 2}


@pytest.mark.parametrize("name", ["all.pftrace", "all.json"])
def test_the_perfetto_ui_shows_it(made, packets, tmp_path, name):
    ui = Ui(pathlib.Path(made.tmp / name))
    with Browser(tmp_path) as b:
        b.ask("Page.navigate", url=ui.url)
        b.until("typeof app === 'object' && Boolean(app.trace)", 60)
        assert query(b, "select name, value from stats where value > 0 and severity != 'info'") == []
        ((slices,),) = query(b, "select count(*) from slice")
        assert int(slices) == made.counts["slices"] + made.counts["instants"]
        assert query(b, "select count(*) from counter") == [[str(made.counts["counters"])]]
        assert query(b, "select count(*) from flow") == [[str(made.counts["arrows"])]]
        tracks = "app.trace.workspaces.currentWorkspace.flatTracks"
        b.until(f"{tracks}.some((t) => /^rank +3 /.test(t.name || t.title))")
        shown = b.js(tracks + ".map((t) => (t.name || t.title).replace(/ +/g, ' ')).join('\\n')")
        ranks = [line.split(" · ")[0] for line in shown.split("\n") if line.startswith("rank ")]
        assert sorted(set(ranks)) == [f"rank {r}" for r in range(RANKS)]
        if name.endswith(".pftrace"):
            named = {t[0] for t in packets[0].values()}
            assert named <= set(shown.split("\n")), named - set(shown.split("\n"))
            assert ranks == [f"rank {r}" for r in range(RANKS)]
    ui.server.shutdown()
