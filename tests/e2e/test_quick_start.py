# SPDX-License-Identifier: MulanPSL-2.0
"""The quick start of msMonitor's users, command by command, with eight ranks on the simulated NPU.

The daemon with certificates and TensorBoard, the environment, a job that a script starts, the
monitor on and off, and a trace of two steps: with the programs' own names, options and files.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess

import pytest
from capabilities import lacks
from daemon import Daemon
from waiting import wait_until

RANKS = 8


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("quick_start")


@pytest.fixture(scope="module")
def certs(build, place):
    run = [build / "bin" / "sonde", "certs", "--key-type", "ec", "-o", place / "certs"]
    subprocess.run([*run, "localhost"], check=True, capture_output=True)
    where = lambda name: next((place / "certs").rglob(name)).parent
    return where("server.crt"), where("client.crt")


@pytest.fixture(scope="module")
def dynolog(build, place, certs):
    """Start the dynolog daemon process."""
    flags = ["--certs-dir", certs[0], "--metric_log_dir", place / "metric_log_dir"]
    with Daemon(build, place, *flags, ipc=True, program="dynolog") as d:
        yield d


@pytest.fixture(scope="module")
def dyno(build, certs, dynolog):
    def run(*words):
        r = subprocess.run(
            [build / "bin" / "dyno", "--port", str(dynolog.port), "--certs-dir", certs[1],
             *map(str, words)],
            capture_output=True, text=True, timeout=60)  # fmt: skip
        assert r.returncode == 0, r.stdout + r.stderr
        return r.stdout

    return run


@pytest.fixture(scope="module")
def job(build, place, dynolog):
    """The environment of the quick start, and `bash run_ai_task.sh`."""
    script = place / "run_ai_task.sh"
    script.write_text(
        f"cd {place}\n"
        f"{build}/sim/simtrain --quiet --ranks {RANKS} --forever --step-ms 50 > job.out 2> job.err\n"
    )
    env = {
        **os.environ,
        "MSMONITOR_USE_DAEMON": "1",
        "LD_PRELOAD": f"{build}/sim/libmspti.so:{build}/lib/libsonde_monitor.so",
        "KINETO_IPC_SOCKET_DIR": str(dynolog.ipc_dir),
    }
    p = subprocess.Popen(["bash", script], env=env, start_new_session=True)
    yield p
    with contextlib.suppress(ProcessLookupError):
        os.killpg(p.pid, signal.SIGKILL)
    p.wait()


def status(dyno):
    return json.loads(re.search(r"\{.*\}", dyno("status")).group())


def response(out):
    return json.loads(re.search(r"response = (\{.*\})", out).group(1))


def pythons_with_tensorboard():
    here = pathlib.Path(__file__).resolve().parents[2] / "build" / "tensorboard" / "bin" / "python"
    for p in ("python3", here):
        if shutil.which(p) and not subprocess.run(
            [p, "-c", "import tensorboard"], capture_output=True
        ).returncode:
            yield p


def scalars(folder):
    """What the real tensorboard package reads: {tag: [(step, value)]}."""
    python = next(pythons_with_tensorboard(), None)
    if not python:
        lacks("tensorboard", "./bootstrap test installs it")
    program = (
        "import json, sys\n"
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "e = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0})\n"
        "e.Reload()\n"
        "print(json.dumps({t: [(s.step, s.value) for s in e.Scalars(t)]"
        " for t in e.Tags()['scalars']}))"
    )
    r = subprocess.run([python, "-c", program, folder], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def test_1_the_job_is_seen(dyno, job):
    wait_until(lambda: dyno("ps", "--json").count('"pid":') == RANKS, "every rank")
    wait_until(lambda: status(dyno)["npumonitor"] == "Idle", "the job")
    out = status(dyno)
    assert out["nputrace"] == "Idle" and "start_step" not in out


def test_2_monitor_on(dyno, job, dynolog, place):
    out = dyno("npu-monitor", "--npu-monitor-start", "--report-interval-s", 1,
               "--mspti-activity-kind", "Kernel")  # fmt: skip
    answer = response(out)
    assert answer["commandStatus"] == "effective"
    assert len(answer["activityProfilersTriggered"]) == RANKS
    wait_until(lambda: status(dyno)["npumonitor"] == "Running", "Running")
    folders = [place / "metric_log_dir" / f"device_{i}" for i in range(RANKS)]
    wait_until(lambda: all((f / "tfevents.pb").is_file() for f in folders), "files of every device")
    # the trace has to wait until the monitor is off
    refused = response(dyno("nputrace", "--start-step", 10, "--iterations", 2, "--log-file",
                            place / "refused"))  # fmt: skip
    assert refused == {"commandStatus": "ineffective"}


def test_3_metrics_in_tensorboard(place, dyno, job):
    for i in range(RANKS):
        folder = place / "metric_log_dir" / f"device_{i}"
        # each look by TensorBoard itself starts a program
        named = lambda f=folder: (f / "tfevents.pb").read_bytes().count(b"Kernel")
        wait_until(lambda: named() >= 2, f"values of device {i}")
        kernel = wait_until(lambda f=folder: scalars(f).get("Kernel"), "values that TensorBoard reads")
        assert len(kernel) >= 2
        assert [s for s, _ in kernel] == list(range(len(kernel)))
        assert all(v > 0 for _, v in kernel)


def test_4_monitor_off(dyno, job):
    answer = response(dyno("npu-monitor", "--npu-monitor-stop"))
    assert answer["commandStatus"] == "effective"
    wait_until(lambda: status(dyno)["npumonitor"] == "Idle", "Idle")


def test_5_trace_of_two_steps(dyno, job, place):
    first = wait_until(lambda: status(dyno)["current_step"], "steps") + 150
    out = dyno("nputrace", "--start-step", first, "--iterations", 2, "--activities", "CPU,NPU",
               "--analyse", "--data-simplification", "false", "--log-file",
               place / "profile_data")  # fmt: skip
    assert response(out)["commandStatus"] == "effective"
    seen = wait_until(lambda: status(dyno)["nputrace"] == "Ready" and status(dyno), "Ready")
    assert (seen["nputrace"], seen["start_step"], seen["stop_step"]) == ("Ready", first, first + 2)
    done = lambda: list((place / "profile_data").glob("*_sonde/trace.json"))
    wait_until(lambda: len(done()) == RANKS, "a trace of every rank")
    wait_until(lambda: status(dyno)["nputrace"] == "Idle", "Idle")
    ranks = set()
    for path in done():
        events = json.loads(path.read_text())["traceEvents"]
        names = [e["name"] for e in events if e["name"].startswith("ProfilerStep#")]
        assert names == [f"ProfilerStep#{first}", f"ProfilerStep#{first + 1}"], path
        [db] = path.parent.glob("*.db")
        ranks.add(int(db.stem.rsplit("_", 1)[1]))
        steps_are_whole(db, events)
    assert ranks == set(range(RANKS))


def steps_are_whole(db, events):
    """Each of the two steps has every kernel of a step, in the DB and in the trace."""
    with contextlib.closing(sqlite3.connect(db)) as c:
        rows = c.execute(
            "select s.value, count(*) from COMPUTE_TASK_INFO i join STRING_IDS s on s.id = i.name"
            " group by 1"
        ).fetchall()
    counts = dict(rows)
    assert counts["NLLLoss"] == 2 and counts["ApplyAdamW"] == 16, counts
    kernels = [e["name"] for e in events if e.get("args", {}).get("kind") == "Kernel"]
    assert {n: kernels.count(n) for n in counts} == counts


def test_6_summary_of_all_ranks(job, place):
    path = wait_until(lambda: list((place / "profile_data").glob("summary_*.json")), "the summary")[0]
    wait_until(lambda: len(json.loads(path.read_text())["ranks"]) == RANKS, "all ranks in it")
    text = path.with_suffix(".txt").read_text()
    assert text.startswith("Steps "), text
    assert job.poll() is None
    assert (place / "job.err").read_text() == ""
