# SPDX-License-Identifier: MulanPSL-2.0
"""The documented walk-through, command by command, against simulated frameworks: the daemon,
status, npu-monitor, nputrace, gputrace; plain and with certificates; by every kind of socket."""

import json
import os
import pathlib
import re
import signal
import stat
import subprocess

import pytest
from daemon import Daemon, need_namespaces
from harness import wait_gone
from waiting import wait_until

WAIT_S = 30  # far more than anything here takes
MONITOR_KERNELS = (
    *("--npu-monitor-start", "--report-interval-s", 1),
    *("--mspti-activity-kind", "Kernel"),
)
FAST = ("--step-ms", 50, "--poll-ms", 100, "--status-ms", 50, "--steps", 0)


class Node:
    """A daemon, the frameworks of its node, and somebody with the command line."""

    def __init__(self, build, tmp_path, *flags, certs=None, namespace=False, bin_dir=None):
        self.build, self.tmp, self.certs = build, tmp_path, certs
        tls = ("--certs-dir", certs / "server-localhost") if certs else ()
        self.daemon = Daemon(
            bin_dir or build,
            tmp_path,
            *tls,
            *flags,
            program="dynolog",
            ipc=True,
            namespace=namespace,
        )
        self.clients = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for c in self.clients:
            if c.poll() is None:
                c.kill()
            c.wait()
        self.daemon.stop()

    def dyno(self, *words, status=0):
        tls = ("--certs-dir", self.certs / "client") if self.certs else ()
        r = self.daemon.run(
            self.build / "bin" / "dyno", "--port", self.daemon.port, *tls, *words, timeout=WAIT_S
        )
        assert r.returncode == status, (words, r.stdout, r.stderr)
        return r

    def ask(self, *words):
        """The JSON of an answer, as it is printed."""
        out = self.dyno(*words).stdout
        m = re.search(r"^(?:response = )?(\{.*\})$", out, re.M)
        assert m, out
        return json.loads(m.group(1))

    def status(self):
        return self.ask("status")

    def wait_status(self, what, **want):
        """Waits until the status has these values; gives all that were seen on the way."""
        seen = []

        def there():
            seen.append(self.status())
            return all(seen[-1].get(k) == v for k, v in want.items())

        wait_until(there, lambda: (what, seen[-1], self.said(), self.daemon.log()[-2000:]))
        return seen

    def client(self, *words, place=None, env=None):
        """Simulated framework processes; they print what they do to a file."""
        out = self.tmp / f"client{len(self.clients)}"
        place = ("--dir", self.daemon.ipc_dir) if place is None else place
        with open(out, "wb") as f:
            c = self.daemon.popen(
                self.build / "sim" / "simclient", *place, *words, stdout=f, stderr=f, env=env
            )
        c.out = out
        self.clients.append(c)
        return c

    def said(self):
        return "\n".join(c.out.read_text() for c in self.clients)

    def wait_said(self, pattern, times=1):
        wait_until(lambda: len(re.findall(pattern, self.said())) >= times, lambda: (pattern, self.said()))
        return re.findall(pattern, self.said())

    def processes(self):
        return json.loads(self.dyno("--json", "ps").stdout)

    def monitor(self, *words):
        return self.ask("npu-monitor", *words)

    def trace(self, out, start, steps, *words):
        return self.ask(
            *("nputrace", "--start-step", start, "--iterations", steps, "--log-file", out, *words)
        )


def ascend_traces(out):
    """Steps of every trace below a directory."""
    return [
        sorted(
            int(e["name"].partition("#")[2])
            for e in json.loads(f.read_text())["traceEvents"]
            if e["name"].startswith("ProfilerStep#")
        )
        for f in sorted(pathlib.Path(out).glob("*_ascend_pt/*/trace_view.json"))
    ]


def kineto_steps(path):
    """Steps of which a trace has kernels."""
    events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    return sorted({e["args"]["step"] for e in events if e.get("cat") == "kernel"})


@pytest.fixture(scope="module")
def certificates(build, tmp_path_factory):
    """What `sonde certs` makes for this host."""
    out = tmp_path_factory.mktemp("certs") / "set"
    r = subprocess.run(
        [str(build / "bin" / "sonde"), "certs", "--out", str(out), "--key-type", "ec", "localhost"],
        capture_output=True,
        text=True,
    )
    assert r.returncode == 0, r.stdout + r.stderr
    return out


@pytest.mark.parametrize("mode", ["plain", "certificates"])
def test_quick_start(build, tmp_path, request, mode):
    certs = request.getfixturevalue("certificates") if mode == "certificates" else None
    tensorboard = tmp_path / "metric_log_dir"
    out = tmp_path / "profile_data"
    with Node(build, tmp_path, "--use_JSON", "--metric_log_dir", tensorboard, certs=certs) as n:
        assert n.status() == {
            "current_step": -1,
            "npumonitor": "Uninitialized",
            "nputrace": "Uninitialized",
        }
        n.client("--ranks", 2, *FAST)
        n.wait_status("after init", nputrace="Idle", npumonitor="Idle")

        reply = n.monitor(*MONITOR_KERNELS)
        assert reply["commandStatus"] == "effective" and len(reply["processesMatched"]) == 1
        n.wait_status("monitor runs", npumonitor="Running", nputrace="Idle")

        assert n.trace(out, -1, 2) == {"commandStatus": "ineffective"}
        files = [tensorboard / f"device_{i}" / "tfevents.pb" for i in (0, 1)]
        wait_until(lambda: all(f.exists() and f.stat().st_size for f in files), n.said)
        wait_until(lambda: re.search(r"kind\W+Kernel", n.daemon.log()), n.daemon.log)

        assert n.monitor("--npu-monitor-stop")["commandStatus"] == "effective"
        n.wait_status("monitor stopped", npumonitor="Idle")
        n.wait_said("monitor stopped", 2)

        start = n.status()["current_step"] + 60
        reply = n.trace(
            *(out, start, 10, "--activities", "CPU,NPU", "--analyse"),
            *("--data-simplification", "false"),
        )
        assert reply["commandStatus"] == "effective"
        seen = n.wait_status("trace is ready", nputrace="Ready")
        assert (seen[-1]["start_step"], seen[-1]["stop_step"]) == (start, start + 10)
        seen += n.wait_status("trace runs", nputrace="Running")
        assert start <= seen[-1]["current_step"] < start + 10
        seen += n.wait_status("trace is done", nputrace="Idle")
        order = [s["nputrace"] for s in seen]
        assert [s for i, s in enumerate(order) if s != order[i - 1] or not i][-3:] == [
            *("Ready", "Running", "Idle")
        ]
        wait_until(lambda: len(ascend_traces(out)) == 2, n.said)
        assert ascend_traces(out) == [list(range(start, start + 10))] * 2

        n.clients[0].terminate()
        n.wait_status("client ended", nputrace="Uninitialized", npumonitor="Uninitialized")


def test_plain_client_and_daemon_with_certificates_do_not_meet(build, tmp_path, certificates):
    with Node(build, tmp_path, certs=certificates) as n:
        r = n.daemon.run(build / "bin" / "dyno", "--port", n.daemon.port, "status")
        assert r.returncode != 0 and "{" not in r.stdout, r.stdout
        assert n.status()["nputrace"] == "Uninitialized"


def test_a_start_step_that_is_over_is_refused_by_the_client(build, tmp_path):
    with Node(build, tmp_path) as n:
        n.client(*FAST)
        n.wait_status("steps", nputrace="Idle")
        wait_until(lambda: n.status()["current_step"] > 5, n.said)
        assert n.trace(tmp_path / "out", 1, 2)["commandStatus"] == "effective"
        n.wait_said("warning: start step 1 is over")
        n.wait_status("back", nputrace="Idle")
        assert not (tmp_path / "out").exists()
        # and the next order is served
        assert n.trace(tmp_path / "out", -1, 2)["commandStatus"] == "effective"
        wait_until(lambda: len(ascend_traces(tmp_path / "out")) == 1, n.said)
        ((first, last),) = ascend_traces(tmp_path / "out")
        assert last == first + 1


def test_ranks_that_are_not_listed_do_not_trace(build, tmp_path):
    with Node(build, tmp_path) as n:
        n.client("--ranks", 3, *FAST)
        n.wait_status("steps", nputrace="Idle")
        n.trace(tmp_path / "out", -1, 2, "--rank-list", "0,2")
        n.wait_said("trace of 2 steps written", 2)
        n.wait_said("rank 1 .*for other ranks")
        assert len(ascend_traces(tmp_path / "out")) == 2


def test_a_client_killed_while_it_traces_is_forgotten(build, tmp_path):
    """Its last word was Running: that must not keep others from tracing."""
    with Node(build, tmp_path) as n:
        c = n.client(*FAST)
        n.wait_status("steps", nputrace="Idle")
        n.trace(tmp_path / "out", -1, 100000)
        n.wait_status("trace runs", nputrace="Running")
        c.kill()
        c.wait()
        seen = n.wait_status("forgotten", nputrace="Uninitialized", npumonitor="Uninitialized")
        assert len(seen) < 100
        n.client(*FAST)
        n.wait_status("the next job", nputrace="Idle")
        assert n.trace(tmp_path / "out", -1, 2)["commandStatus"] == "effective"
        wait_until(lambda: len(ascend_traces(tmp_path / "out")) == 1, n.said)


def test_a_daemon_that_was_killed_is_replaced_under_running_jobs(build, tmp_path):
    """What a rank said only once, it said to the daemon before."""
    with Node(build, tmp_path) as node:
        node.client("--npu", *FAST)
        node.wait_status("registered", nputrace="Idle", npumonitor="Idle")
        node.monitor(*MONITOR_KERNELS)
        node.wait_status("monitoring", npumonitor="Running")
        old, ipc_dir = node.daemon, node.daemon.ipc_dir
        old.process.kill()
        old.process.wait()
        flags = ("--enable-ipc-monitor", "--ipc-socket-dir", ipc_dir, "--ipc-dir-only")
        node.daemon = Daemon(build, tmp_path, *flags, program="dynolog")
        node.daemon.ipc_dir.rmdir()
        node.daemon.ipc_dir = ipc_dir
        node.wait_status("seen again", nputrace="Idle")
        wait_until(lambda: node.processes()[0]["processes"][0]["poller"], node.processes)
        assert "No processes" in node.dyno("gputrace", "--log-file", "/tmp/no.json").stdout
        assert node.monitor("--npu-monitor-stop")["commandStatus"] == "effective"
        node.wait_status("stopped", npumonitor="Idle")
        assert node.trace(tmp_path / "out", -1, 2)["commandStatus"] == "effective"
        wait_until(lambda: ascend_traces(tmp_path / "out"), node.said)
        old.stop()


def test_a_monitor_that_ends_by_its_duration_is_free_again(build, tmp_path):
    """The client does not say that its monitor ended."""
    with Node(build, tmp_path) as n:
        n.client("--ranks", 2, *FAST)
        n.wait_status("steps", nputrace="Idle")
        n.monitor("--npu-monitor-start", "--report-interval-s", 1, "--duration", 2)
        n.wait_status("monitor runs", npumonitor="Running")
        assert n.trace(tmp_path / "out", -1, 2)["commandStatus"] == "ineffective"
        n.wait_status("monitor is over", npumonitor="Idle")
        n.wait_said("its duration is over", 2)
        assert n.trace(tmp_path / "out", -1, 2)["commandStatus"] == "effective"
        wait_until(lambda: len(ascend_traces(tmp_path / "out")) == 2, n.said)


def test_a_monitor_goes_on_with_other_kinds(build, tmp_path):
    with Node(build, tmp_path, "--use-JSON") as n:
        n.client(*FAST)
        n.wait_status("steps", nputrace="Idle")
        n.monitor("--npu-monitor-start", "--report-interval-s", 1, "--mspti-activity-kind", "API")
        wait_until(lambda: re.search(r"kind\W+API", n.daemon.log()), n.said)
        n.monitor(
            *("--npu-monitor-start", "--report-interval-s", 1),
            *("--mspti-activity-kind", "Marker,Communication"),
        )
        wait_until(lambda: re.search(r"kind\W+Communication", n.daemon.log()), n.said)
        wait_until(lambda: re.search(r"kind\W+Marker", n.daemon.log()), n.said)
        assert n.said().count("monitor started") == 1
        assert not re.search(r"kind\W+Kernel", n.daemon.log())


# --- libkineto ---

KINETO = ("--kineto", "--step-ms", 50, "--poll-ms", 150, "--warmup-ms", 200, "--steps", 0)


@pytest.fixture(params=["dir", "abstract"])
def kineto_node(request, build, tmp_path):
    """A node and where its clients look for the daemon."""
    namespace = request.param == "abstract"
    with Node(build, tmp_path, namespace=namespace) as n:
        n.place = ("--abstract",) if namespace else None
        yield n


def gputrace(n, out, *words):
    return n.ask("gputrace", "--log-file", out, *words)


def files(stem, pids):
    return [pathlib.Path(f"{stem}_{pid}.json") for pid in pids]


def test_gputrace_by_duration_and_by_iterations(kineto_node, tmp_path):
    n = kineto_node
    n.client(*KINETO, "--ranks", 3, place=n.place)
    n.wait_said("registered", 3)
    assert n.status()["nputrace"] == "Uninitialized", "such clients tell no status"

    pids = gputrace(n, tmp_path / "d.json", "--duration-ms", 300)["activityProfilersTriggered"]
    assert len(pids) == 3
    wait_until(lambda: all(f.exists() for f in files(tmp_path / "d", pids)), n.said)
    assert all(kineto_steps(f) for f in files(tmp_path / "d", pids))

    again = gputrace(n, tmp_path / "i.json", "--iterations", 4)
    assert sorted(again["activityProfilersTriggered"]) == sorted(pids)
    wait_until(lambda: all(f.exists() for f in files(tmp_path / "i", pids)), n.said)
    for f in files(tmp_path / "i", pids):
        steps = kineto_steps(f)
        assert steps == list(range(steps[0], steps[0] + 4))


def test_process_limit_and_pids(kineto_node, tmp_path):
    n = kineto_node
    n.client(*KINETO, "--ranks", 4, place=n.place)
    n.wait_said("registered", 4)
    reply = gputrace(n, tmp_path / "a.json", "--iterations", 2, "--process-limit", 2)
    assert len(reply["processesMatched"]) == 4 and len(reply["activityProfilersTriggered"]) == 2
    triggered = files(tmp_path / "a", reply["activityProfilersTriggered"])
    wait_until(lambda: all(f.exists() for f in triggered), n.said)
    assert len(list(tmp_path.glob("a_*.json"))) == 2

    one = reply["processesMatched"][3]
    reply = gputrace(n, tmp_path / "b.json", "--iterations", 2, "--pids", one)
    assert reply["processesMatched"] == [one]
    wait_until(lambda: files(tmp_path / "b", [one])[0].exists(), n.said)
    # the launcher is an ancestor of all
    launcher = n.clients[0].pid
    reply = gputrace(
        n, tmp_path / "c.json", "--iterations", 2, "--pids", launcher, "--process-limit", 9
    )
    assert len(reply["activityProfilersTriggered"]) == 4


def test_a_busy_process_finds_its_next_config_later(kineto_node, tmp_path):
    n = kineto_node
    n.client(*KINETO, "--warmup-ms", 1500, place=n.place)
    n.wait_said("registered")
    first = gputrace(n, tmp_path / "first.json", "--duration-ms", 500)
    (pid,) = first["activityProfilersTriggered"]
    n.wait_said("got a config: 500 ms")
    second = gputrace(n, tmp_path / "second.json", "--iterations", 3)
    assert second["activityProfilersTriggered"] == [pid] and second["activityProfilersBusy"] == 0
    third = gputrace(n, tmp_path / "third.json", "--iterations", 3)
    assert third["activityProfilersTriggered"] == [] and third["activityProfilersBusy"] == 1
    wait_until(lambda: files(tmp_path / "second", [pid])[0].exists(), n.said)
    said = n.said()
    assert said.index("first_") < said.index("trace of") < said.index("got a config: 3 iterations")
    assert not list(tmp_path.glob("third_*"))


def test_jobs_are_apart(build, tmp_path):
    with Node(build, tmp_path) as n:
        n.client(*KINETO, env={"SLURM_JOB_ID": "4711"})
        n.client(*KINETO)
        n.wait_said("registered", 2)
        none = n.dyno("gputrace", "--log-file", tmp_path / "x.json", "--job-id", 5)
        assert '"processesMatched":[]' in none.stdout.replace(" ", "")
        reply = gputrace(n, tmp_path / "x.json", "--job-id", 4711, "--iterations", 2)
        assert reply["processesMatched"] == [n.clients[0].pid]


def test_processes_are_listed_and_gone_with_their_end(build, tmp_path):
    with Node(build, tmp_path) as n:
        c = n.client(*KINETO, "--ranks", 2)
        n.wait_said("registered", 2)

        def listed():
            return n.daemon.call({"fn": "listProcesses"})["processes"]

        # a list does not wait long for the commands
        wait_until(lambda: all(p["command"] for p in listed()), listed)
        rows = listed()
        assert [p["rank"] for p in rows] == [0, 1]
        assert all("simclient" in p["command"] for p in rows)
        out = n.dyno("ps").stdout
        assert all(str(p["pid"]) in out for p in rows), out
        os.kill(rows[0]["pid"], signal.SIGKILL)
        wait_until(lambda: len(n.daemon.call({"fn": "listProcesses"})["processes"]) == 1, n.daemon.log)
        c.terminate()
        c.wait()
        wait_until(lambda: not n.daemon.call({"fn": "listProcesses"})["processes"], n.daemon.log)


# --- the endpoints of the NPU clients ---


def test_the_older_npu_client(build, tmp_path):
    """Abstract sockets and short status messages; its trace has no steps in the status."""
    with Node(build, tmp_path, "--use-JSON", namespace=True) as n:
        n.client("--old", *FAST, place=())
        n.wait_status("after init", nputrace="Idle", npumonitor="Idle")
        n.monitor(*MONITOR_KERNELS)
        n.wait_status("monitor runs", npumonitor="Running")
        wait_until(lambda: re.search(r"kind\W+Kernel", n.daemon.log()), n.said)
        n.monitor("--npu-monitor-stop")
        n.wait_status("monitor stopped", npumonitor="Idle")
        n.trace(tmp_path / "out", -1, 20)
        seen = n.wait_status("trace runs", nputrace="Running")
        assert seen[-1]["current_step"] == -1
        wait_until(lambda: len(ascend_traces(tmp_path / "out")) == 1, n.said)


def test_the_npu_client_by_the_home_directory(build, tmp_path):
    """As it really looks: HOME of the password database. The daemon gets one of its own, by a mount
    that nobody else sees."""
    home = tmp_path / "h"
    home.mkdir(mode=0o700)
    passwd = tmp_path / "passwd"
    passwd.write_text(f"me:x:{os.getuid()}:{os.getgid()}::{home}:/bin/sh\n")
    bin_dir = tmp_path / "wrapped"
    (bin_dir / "bin").mkdir(parents=True)
    wrapper = bin_dir / "bin" / "dynolog"
    wrapper.write_text(
        "#!/bin/sh\n"
        'exec unshare -m sh -c \'mount --make-rprivate / && mount --bind "$0" /etc/passwd && '
        f"exec {build}/bin/dynolog \"$@\"' {passwd} \"$@\"\n"
    )
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    need_namespaces("-n", "-m")
    with Node(build, tmp_path, "--use-JSON", namespace=True, bin_dir=bin_dir) as n:
        assert stat.S_IMODE((home / "dynolog.sock").stat().st_mode) == 0o600
        n.client(*FAST, "--ranks", 2, place=("--home", home))
        n.wait_status("after init", nputrace="Idle", npumonitor="Idle")
        n.monitor(*MONITOR_KERNELS)
        wait_until(lambda: re.search(r"kind\W+Kernel", n.daemon.log()), n.said)
        n.monitor("--npu-monitor-stop")
        n.wait_status("monitor stopped", npumonitor="Idle")
        n.trace(tmp_path / "out", -1, 2)
        wait_until(lambda: len(ascend_traces(tmp_path / "out")) == 2, n.said)
    assert not list(home.iterdir()), "the daemon takes its sockets away"


def test_npu_and_kineto_processes_side_by_side(build, tmp_path):
    with Node(build, tmp_path) as n:
        n.client(*FAST)
        n.client(*KINETO, env={"SLURM_JOB_ID": "7"})
        n.wait_status("steps", nputrace="Idle")
        n.wait_said("registered", 2)
        n.monitor("--npu-monitor-start")
        n.wait_status("monitor runs", npumonitor="Running")
        # what the NPU does is no reason to refuse a PyTorch process
        pid = n.clients[1].pid
        reply = gputrace(n, tmp_path / "g.json", "--iterations", 2, "--job-id", 7)
        assert reply["activityProfilersTriggered"] == [pid]
        wait_until(lambda: files(tmp_path / "g", [pid])[0].exists(), n.said)


def test_the_rank_dies_with_its_launcher(build, tmp_path):
    with Node(build, tmp_path) as n:
        c = n.client(*FAST, "--ranks", 2)
        n.wait_status("steps", nputrace="Idle")
        pids = [p["pid"] for p in n.daemon.call({"fn": "listProcesses"})["processes"]]
        c.kill()
        c.wait()
        for pid in pids:
            wait_gone(pid)
        n.wait_status("all gone", nputrace="Uninitialized")
