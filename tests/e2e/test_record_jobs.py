# SPDX-License-Identifier: MulanPSL-2.0
"""sonde record below launchers: Slurm, torchrun, data loaders. Each process is called what it is, and one
timeline has all of them; the real Perfetto UI shows a job of four ranks with everything on."""

import collections
import json
import pathlib
import socket
import subprocess
import sys

import pytest
from browser import Browser
from daemon import Daemon
from recording import clean_env, wait_finished
from test_clocks import make_wrong_clock
from test_ctl_fleet import Fake
from test_idle_devices import PROGRAM, packages  # noqa: F401
from test_record_everything import names_in, read_timeline, simtrain
from test_timeline import Ui, path_of, query, read
from waiting import wait_until

# What torchrun does: it has no rank of its own, but where Slurm has started it, it has Slurm's. Each rank
# has a worker that loads data, which has its environment.
LAUNCHER = """
import os, subprocess, sys, time
stop, role = sys.argv[1], sys.argv[2]
def wait_for_the_end():
    while not os.path.exists(stop): time.sleep(0.005)
def start(role, **env):
    return subprocess.Popen([sys.executable, __file__, stop, role], env=dict(os.environ, **env))
def launch():
    first = 2 * int(os.environ["SLURM_NODEID"])
    for r in [start("rank", RANK=str(first + i), LOCAL_RANK=str(i), WORLD_SIZE="4") for i in range(2)]:
        r.wait()
def rank_works():
    loader = start("loader")
    wait_for_the_end()
    loader.wait()
def loader_loads():
    wait_for_the_end()
{"launch": launch, "rank": rank_works, "loader": loader_loads}[role]()
"""


def on_node(number, words):
    return ["unshare", "--uts", "sh", "-c", f'hostname node{number}; exec "$@"', "sh", *words]


def srun(build, tmp_path, out, tasks, words, options=()):
    """As Slurm starts it on two nodes: so many tasks on each, all with one environment but for a few variables."""
    started = []
    for node in range(2):
        for local in range(tasks):
            env = clean_env(
                tmp_path, SIM_NPU_TIME_SCALE="1", SLURM_JOB_ID="77", SLURM_STEP_ID="0", SLURM_NNODES="2",
                SLURM_NODEID=node, SLURM_LOCALID=local, SLURM_PROCID=node * tasks + local,
                SLURM_NTASKS=2 * tasks, SLURM_NTASKS_PER_NODE=tasks, SLURMD_NODENAME=f"node{node + 1}",
                SLURM_JOB_NODELIST="node[1-2]",
            )  # fmt: skip
            record = [build / "bin/sonde", "record", "-q", "-o", out, *options, "--", *words]
            started.append(subprocess.Popen(on_node(node + 1, record), env=env, stdout=subprocess.DEVNULL))
    return started


@pytest.mark.needs("root")
@pytest.mark.needs("unshare")
@pytest.mark.parametrize("ahead_ns", [100_000, -3 * 10**9])
def test_clocks_of_nodes(build, tmp_path, packages, ahead_ns):  # noqa: F811
    """The wall clock of one node is wrong: collectives that ranks of both have done say by how much."""
    library, out, sim = make_wrong_clock(tmp_path), tmp_path / "shared", build / "sim"
    words = [build / "bin/sonde", "record", "-q", "--only=kernels,memory", "--mspti", sim / "libmspti.so", "-o", out]
    words += ["--", sys.executable, PROGRAM]
    jobs = []
    for rank in range(4):
        node = 1 + rank // 2
        env = clean_env(
            tmp_path, RANK=rank, LOCAL_RANK=rank % 2, WORLD_SIZE=4, SIM_NPU_TIME_SCALE="1", LD_LIBRARY_PATH=sim,
            LD_PRELOAD=f"{library}:{sim}/libruntime.so:{sim}/libms_tools_ext.so", PYTHONPATH=f"{build}/python:{packages}",
            WRONG_OFFSET_NS=ahead_ns * (node - 1), WRONG_PPB=0, WRONG_FROM_NS=0,
        )  # fmt: skip
        plan = ["d=1,n=150", tmp_path / f"truth{rank}", tmp_path / "root", str(rank), "4"]
        jobs.append(subprocess.Popen(on_node(node, [*words, *plan]), env=env))
    assert [j.wait(timeout=60) for j in jobs] == [0] * 4
    for recording in out.glob("recording_*"):
        wait_finished(recording)
    command = [build / "bin/sonde", "timeline", "--json", "-o", tmp_path / "t.pftrace", out]
    r = subprocess.run(command, env=clean_env(tmp_path), check=True, capture_output=True, text=True, timeout=60)
    base, other = json.loads(r.stdout)["hosts"]
    assert (base["host"], other["host"], other["from"]) == ("node1", "node2", "collectives"), r.stderr
    assert abs(other["ahead_ns"] - ahead_ns) <= other["bound_ns"] < 10**7


def processes_in(events):
    return {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}


@pytest.mark.needs("root")
@pytest.mark.needs("unshare")
def test_a_rank_for_each_task_of_slurm(build, tmp_path):
    """srun -n4 sonde record: a recording of each rank, in one directory; the timeline has nodes and ranks in order."""
    out = tmp_path / "shared"
    mspti = ["--mspti", build / "sim/libmspti.so"]
    jobs = srun(build, tmp_path, out, 2, simtrain(build, "--steps", "6"), mspti)
    assert [j.wait(timeout=60) for j in jobs] == [0] * 4
    recordings = sorted(out.glob("recording_*"))
    assert sorted(r.name.rsplit("_", 1)[1] for r in recordings) == ["node1", "node1", "node2", "node2"]
    for recording in recordings:
        wait_finished(recording)
    tracks = read_timeline(build, tmp_path, out)
    assert sum(e["name"] == "step 6" for e in tracks["steps"]) == 4 and "MatMulV2" in names_in(tracks)
    names = processes_in(json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]).values()
    ranks = sorted(n.split(" · pid ")[0] for n in names if n.startswith("rank "))
    assert ranks == ["rank 0 · node1", "rank 1 · node1", "rank 2 · node2", "rank 3 · node2"]
    summary = subprocess.run([build / "bin/sonde", "activity", "summary", "--json", out], env=clean_env(tmp_path),
                             check=True, capture_output=True, timeout=60)  # fmt: skip
    assert sorted(r["rank"] for r in json.loads(summary.stdout)["rows"]) == [0, 1, 2, 3]


@pytest.mark.needs("root")
@pytest.mark.needs("unshare")
def test_a_launcher_for_each_node_of_slurm(build, tmp_path):
    """srun -n2 sonde record -- torchrun: the launcher of node 2 is not rank 1, and who loads data is no rank."""
    script, stop, out = tmp_path / "launch.py", tmp_path / "stop", tmp_path / "shared"
    script.write_text(LAUNCHER)
    jobs = srun(build, tmp_path, out, 1, [sys.executable, script, stop, "launch"], ["--interval", "5ms"])
    wait_until(lambda: len(list(out.glob("recording_*/events.sonde"))) == 2, "the recordings")

    def seen():
        found = collections.Counter(names_in(read_timeline(build, tmp_path, out)))
        events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"] if found else []
        names = processes_in(events)
        by_name = collections.defaultdict(set)
        for e in events:
            if e.get("name") in ("launch", "rank_works", "loader_loads"):
                by_name[e["name"]].add(names[e["pid"]].split(" · pid ")[0])
        return by_name

    ranks = {f"rank {r} · {{}}node{1 + r // 2}" for r in range(4)}
    wanted = {
        "launch": {"launcher · node1", "launcher · node2"},
        "rank_works": {r.format("") for r in ranks},
        "loader_loads": {r.format("helper · ") for r in ranks},
    }
    try:
        wait_until(lambda: seen() == wanted, lambda: f"{wanted}, not {seen()}")
    finally:
        stop.touch()
    assert [j.wait(timeout=60) for j in jobs] == [0] * 2


# --- a job of four ranks with everything on ---

RANKS, STEPS, SLOW = 4, 60, 2
START = """
import os, subprocess, sys
program, truth, root, ranks, steps, slow = sys.argv[1:3] + [sys.argv[3]] + list(map(int, sys.argv[4:7]))
jobs = []
for r in range(ranks):
    words = [sys.executable, program, f"d={30 if r == slow else 4},s=3,a,n={steps}", truth + str(r), root, str(r), str(ranks)]
    jobs.append(subprocess.Popen(words, env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(ranks))))
sys.exit(max(j.wait() for j in jobs))
"""

Made = collections.namedtuple("Made", "tmp recording counts said")


@pytest.fixture(scope="module")
def made(build, tmp_path_factory, packages):  # noqa: F811
    tmp, sim = tmp_path_factory.mktemp("everything"), build / "sim"
    env = clean_env(
        tmp, SIM_NPU_TIME_SCALE="1", SIM_NPU_ALLOC_US="3000", LD_LIBRARY_PATH=sim,
        LD_PRELOAD=f"{sim}/libruntime.so:{sim}/libms_tools_ext.so", PYTHONPATH=f"{build}/python:{packages}",
    )  # fmt: skip
    (tmp / "start.py").write_text(START)
    record = [build / "bin/sonde", "record", "--api", "--interval=5ms", "--mspti", sim / "libmspti.so", "-o", tmp / "rec"]
    job = [sys.executable, tmp / "start.py", PROGRAM, tmp / "truth", tmp / "root", RANKS, STEPS, SLOW]
    r = subprocess.run(list(map(str, [*record, "--", *job])), env=env, capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr
    (recording,) = (tmp / "rec").glob("recording_*")
    wait_finished(recording)

    def timeline(name, *words):
        command = [build / "bin/sonde", "timeline", "--json", "-o", tmp / name, *words, recording]
        done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    counts = timeline("all.pftrace")
    same = timeline("all.json", "--format=json")
    for key in ("instants", "counters", "arrows", "left_out", "processes", "first_ns", "last_ns"):
        assert counts[key] == same[key], key
    return Made(tmp, recording, {"all.pftrace": counts, "all.json": same}, r.stderr)


@pytest.fixture(scope="module")
def packets(made):
    return read(made.tmp / "all.pftrace")


def test_what_each_rank_has(made, packets):
    tracks, events = packets
    counts = made.counts["all.pftrace"]
    assert counts["left_out"] == 0 and counts["arrows"] > RANKS * (STEPS - 3) * 2
    groups = collections.defaultdict(set)
    for uuid in tracks:
        path = path_of(tracks, uuid)
        if len(path) > 1:
            groups[path[0].split(" · ")[0]].add(path[1])
    for rank in range(RANKS):
        assert {"steps", "device 0", "memory", "host", "Python", "counters"} <= groups[f"rank {rank}"]
    assert {"launcher", "the machine"} <= set(groups)
    names = collections.defaultdict(set)
    for e in events:
        names[path_of(tracks, e[0])[0].split(" · ")[0]].add(e[3])
    for rank in range(RANKS):
        mine = names[f"rank {rank}"]
        assert {"MatMul", f"step {STEPS - 1}", "train_step", "save"} <= mine, sorted(map(str, mine))
        assert any(n and "allReduce" in n for n in mine)


def test_the_answers_agree(build, made):
    """Who is slow, and why: by what was planted."""
    words = [build / "bin/sonde", "timeline", "--explain", "--json", made.recording]
    answer = json.loads(subprocess.run(list(map(str, words)), check=True, capture_output=True, timeout=60).stdout)
    assert (answer["slowest"]["rank"], answer["idle"]["slowest"]["why"]) == (SLOW, "data loader"), answer["slowest"]


@pytest.mark.parametrize("name", ["all.pftrace", "all.json"])
def test_the_perfetto_ui_shows_it(made, packets, tmp_path, name):
    ui = Ui(pathlib.Path(made.tmp / name))
    with Browser(tmp_path) as b:
        b.ask("Page.navigate", url=ui.url)
        b.until("typeof app === 'object' && Boolean(app.trace)", 60)
        assert query(b, "select name, value from stats where value > 0 and severity != 'info'") == []
        ((slices,),) = query(b, "select count(*) from slice")
        assert int(slices) == made.counts[name]["slices"] + made.counts[name]["instants"]
        assert query(b, "select count(*) from counter") == [[str(made.counts[name]["counters"])]]
        assert query(b, "select count(*) from flow") == [[str(made.counts[name]["arrows"])]]
        tracks = "app.trace.workspaces.currentWorkspace.flatTracks"
        b.until(f"{tracks}.some((t) => /^rank +3 /.test(t.name || t.title))")
        shown = b.js(tracks + ".map((t) => t.name || t.title).join('\\n')").split("\n")
        shown = [" ".join(name.split()) for name in shown]
        ranks = list(dict.fromkeys(s.split(" · ")[0] for s in shown if s.startswith("rank ")))
        assert sorted(ranks) == [f"rank {r}" for r in range(RANKS)]
        if name.endswith(".pftrace"):  # of processes of Chrome traces the viewer chooses the order
            top = b.js("app.trace.workspaces.currentWorkspace.children.map((t) => t.name).join('\\n')").split("\n")
            kinds = [" ".join(name.split(" · ")[0].split()) for name in top]
            assert kinds[-RANKS - 2 :] == ["launcher", *(f"rank {r}" for r in range(RANKS)), "the machine"], top
            assert {t[0] for t in packets[0].values()} <= set(shown)
    ui.server.shutdown()


def two_hosts(build, tmp_path, clocks, ahead_ns=0, **env):
    """Recordings of this host and of "node2", whose wall clock is wrong and who compares it with others' by `clocks`; what the
    latter said at its end."""
    library, out = make_wrong_clock(tmp_path), tmp_path / "shared"
    words = [build / "bin/sonde", "record", "--only=counters", "-o", out]
    job = ["--", sys.executable, "-c", "import time; time.sleep(1.5)"]
    wrong = clean_env(tmp_path, LD_PRELOAD=library, WRONG_OFFSET_NS=ahead_ns, WRONG_PPB=0, WRONG_FROM_NS=0, **env)
    other = subprocess.Popen(on_node(2, [*words, *clocks, *job]), env=wrong, stderr=subprocess.PIPE, text=True)
    subprocess.run([*words, "-q", *job], env=clean_env(tmp_path), check=True, timeout=60)
    said = other.communicate(timeout=60)[1]
    assert other.returncode == 0, said
    for recording in out.glob("recording_*"):
        wait_finished(recording)
    return out, said


@pytest.mark.needs("root")
@pytest.mark.needs("unshare")
@pytest.mark.parametrize("ahead_ns", [100_000_000, -3 * 10**9])
def test_clocks_by_round_trips(build, tmp_path, ahead_ns):
    """Without collectives: each node asks the daemon of the first one."""
    with Daemon(build, tmp_path) as d:
        out, said = two_hosts(build, tmp_path, [f"--clocks=127.0.0.1:{d.port}"], ahead_ns)
    assert f"was compared with that of 127.0.0.1:{d.port} 2 times" in said
    (file,) = out.glob("*/clocks.json")
    answer = json.loads((file.parent / "answer.json").read_text())["clocks"]
    assert answer == {"hosts": f"127.0.0.1:{d.port}", "measured": 2, "why": None}
    command = [build / "bin/sonde", "timeline", "--json", "-o", tmp_path / "t.pftrace", out]
    r = subprocess.run(command, env=clean_env(tmp_path), check=True, capture_output=True, text=True, timeout=60)
    hosts = {h["host"]: h for h in json.loads(r.stdout)["hosts"]}
    base, other = hosts.pop(socket.gethostname()), hosts.pop("node2")
    assert not hosts and {base["from"], other["from"]} == {"base", "round trips"}, r.stderr
    ahead, bound = other["ahead_ns"] - base["ahead_ns"], max(other["bound_ns"], base["bound_ns"])
    assert abs(ahead - ahead_ns) <= bound + 1_000_000 and bound < 10**7


@pytest.mark.needs("root")
@pytest.mark.needs("unshare")
def test_no_daemon_to_compare_clocks_with(build, tmp_path):
    """The first node of a Slurm job is asked; of a host that has no daemon that is said, and nothing waits for it."""
    slurm = dict(SLURM_NNODES="2", SLURM_JOB_NODELIST="127.0.0.[1-2]")
    with Daemon(build, tmp_path) as d:
        port = d.port
    out, said = two_hosts(build, tmp_path, [f"--clocks=127.0.0.1:{port}"], **slurm)
    assert "could not be compared" in said and "only the collectives" in said
    answer = [json.loads(f.read_text()).get("clocks") for f in out.glob("*/answer.json")]
    (clocks,) = [c for c in answer if c]
    assert clocks["measured"] == 0 and clocks["why"].startswith("connection refused by")


@pytest.mark.parametrize("hosts", ["\udcff", "a b", "@/etc/passwd", ",,", "node[3-1]"])
def test_what_is_no_list_of_hosts_is_refused(build, tmp_path, hosts):
    words = [build / "bin/sonde", "record", f"--clocks={hosts}", "-o", tmp_path / "rec", "--", "touch", tmp_path / "ran"]
    r = subprocess.run(words, env=clean_env(tmp_path), timeout=60, stderr=subprocess.PIPE)
    assert r.returncode == 2 and b"invalid value of --clocks: " in r.stderr and not list(tmp_path.iterdir()), r.stderr


@pytest.mark.parametrize("answers", [False, True])
def test_hosts_that_answer_without_a_time(build, tmp_path, answers):
    """Whatever listens there: what was not compared is not called so, and what another host said is kept."""
    with Fake(getTime=lambda request: {"time_ns": 1 << 62}) as wrong, Daemon(build, tmp_path) as d:
        hosts = ",".join(f"127.0.0.1:{port}" for port in [wrong.port] + answers * [d.port])
        words = [build / "bin/sonde", "record", "--only=counters", f"--clocks={hosts}", "-o", tmp_path / "rec"]
        words += ["--", sys.executable, "-c", "import time; time.sleep(1)"]
        r = subprocess.run(words, env=clean_env(tmp_path), check=True, timeout=60, stderr=subprocess.PIPE, text=True)
        (recording,) = (tmp_path / "rec").glob("recording_*")
        wait_finished(recording)
    clocks = json.loads((recording / "answer.json").read_text())["clocks"]
    assert clocks["measured"] == 2 * answers, r.stderr
    assert clocks["why"] == (None if answers else "it answers without a time")
    trips = json.loads((recording / "clocks.json").read_text())["trips"]
    assert {t["label"] for t in trips} == ({"here", f"127.0.0.1:{d.port}"} if answers else set())


@pytest.mark.needs("root")
@pytest.mark.needs("unshare")
@pytest.mark.parametrize("certs", ["/etc/sonde/certs", "NO_CERTS", None])
@pytest.mark.parametrize(
    "env, hosts",
    [
        (dict(SLURM_NNODES="2", SLURM_JOB_NODELIST="gpu[07-09,12],other"), "gpu07"),
        (dict(SLURM_NNODES="2", SLURM_JOB_NODELIST="node2,node3"), ""),
        (dict(SLURM_NNODES="1", SLURM_JOB_NODELIST="gpu01"), ""),
        (dict(MASTER_ADDR="10.0.0.7"), "10.0.0.7"),
        (dict(MASTER_ADDR="localhost"), ""),
        (dict(MASTER_ADDR="\udcff\x1b[2J"), ""),
    ],
)
def test_whose_clock_is_compared(build, tmp_path, env, hosts, certs):
    """Without certificates another user of that host could answer: nobody is asked who was not named."""
    options = ["-q", "--only=counters", "-o", tmp_path / "rec", *(certs and ["--certs-dir", certs] or [])]
    words = [build / "bin/sonde", "record", *options, "--", "true"]
    subprocess.run(on_node(2, words), env=clean_env(tmp_path, **env), check=True, timeout=60)
    (config,) = (tmp_path / "rec").glob("*/config.json")
    assert json.loads(config.read_text())["clockHosts"] == (hosts if certs and certs[0] == "/" else "")
