# SPDX-License-Identifier: MulanPSL-2.0
"""The packages msmonitor, IPCMonitor and mindstudio_monitor as frameworks use them: what they
import, and PyDynamicMonitorProxy."""

import json
import re

import pytest
import torches
from daemon import Daemon
from monitor_programs import ENDS, NPU, PER_MINOR, SOME, Programs
from waiting import wait_until


@pytest.fixture
def programs(build, tmp_path):
    made = Programs(build, tmp_path)
    yield made
    made.end()


# --- importing ---


@pytest.mark.parametrize("python", PER_MINOR)
def test_import_needs_nothing_but_python(programs, python):
    code = """
import os, sys, threading
before = dict(os.environ), set(os.listdir("/proc/self/fd"))
import IPCMonitor_C, IPCMonitor, msmonitor, mindstudio_monitor
from IPCMonitor import PyDynamicMonitorProxy
from msmonitor import ActivityKind, Monitor
assert IPCMonitor.Monitor is mindstudio_monitor.Monitor is Monitor
assert mindstudio_monitor.ActivityKind is ActivityKind
assert PyDynamicMonitorProxy() is msmonitor.PyDynamicMonitorProxy()
assert "sonde._monitor" not in sys.modules and "torch" not in sys.modules
with open("/proc/self/maps") as maps:
    assert "libsonde" not in maps.read()
assert (dict(os.environ), set(os.listdir("/proc/self/fd"))) == before
assert len(os.listdir("/proc/self/task")) == 1
print([(k.name, k.value) for k in ActivityKind])
"""
    r = programs.run(code, python=python)
    assert r.stderr == ""
    assert dict(eval(r.stdout)) == {
        "Marker": 1, "Kernel": 2, "API": 3, "Communication": 9, "AclAPI": 10, "NodeAPI": 11,
        "RuntimeAPI": 12,
    }  # fmt: skip


@pytest.mark.parametrize("python", ENDS)
def test_modules_of_the_names_they_have_elsewhere(programs, python):
    """Submodules of IPCMonitor, and the functions of the library below it."""
    code = NPU + """
import importlib
import IPCMonitor, IPCMonitor_C, IPCMonitor_C.monitor as library
from IPCMonitor.dynamic_monitor_proxy import PyDynamicMonitorProxy
from IPCMonitor.monitor import ActivityKind, Monitor
from IPCMonitor.utils import get_parallel_group_info, get_rank_id
from IPCMonitor.singleton import Singleton
from IPCMonitor.file_manager import FileManager
from IPCMonitor._ipcmonitor_C import ipcmonitor_C_module
assert ipcmonitor_C_module is IPCMonitor_C and IPCMonitor_C.monitor is library
for name in ("monitor", "utils", "dynamic_monitor_proxy", "singleton", "file_manager"):
    module = importlib.import_module("msmonitor." + name)
    assert getattr(IPCMonitor, name) is module is importlib.import_module("IPCMonitor." + name)
assert Monitor is IPCMonitor.Monitor and library.ActivityKind is ActivityKind
assert (get_rank_id(), get_parallel_group_info()) == (5, "")
assert Singleton(dict)() == {} and Singleton(dict) is not Singleton(dict)
assert library.Kernel().to_tuple() == ("", 0.0, 0.0, 0, 0, 0, "")

assert library.get_kinds() == set() and library.get_kernel_data() == []
for wrong in ("Kernel", [2], None):
    try:
        library.start_monitor(wrong)
        print("taken:", wrong)
    except TypeError:
        pass
npu = Npu()
library.start_monitor([ActivityKind.Kernel, ActivityKind.Marker])
npu.step()
library.stop_monitor()
assert library.get_kinds() == {ActivityKind.Kernel, ActivityKind.Marker}
assert [k.name for k in library.get_kernel_data()].count("Add") == 1
assert {m.name for m in library.get_marker_data()} == {"train"}
for function in ("api", "acl_api", "node_api", "runtime_api", "communication"):
    assert getattr(library, f"get_{function}_data")() == []
FileManager.create_file_by_path("made/here.txt")
os.symlink("made", "link")
try:
    FileManager.make_dir_safety("link")
except RuntimeError:
    print(oct(os.stat("made/here.txt").st_mode & 0o777))
IPCMonitor_C.set_cluster_config_data(cluster_config={})

import types
comm = sys.modules["mindspore.communication"] = types.SimpleNamespace(
    GlobalComm=types.SimpleNamespace(INITED=True), get_comm_name=lambda name: "comm_" + name,
    get_local_rank=lambda name: 1, get_process_group_ranks=lambda name: [4, 5])
sys.modules["mindspore.communication._comm_helper"] = types.SimpleNamespace(
    _get_group_map=lambda: {"tp": 0})
print(get_parallel_group_info())
"""
    r = programs.run(code, python=python, RANK=5)
    groups = {"comm_tp": {"global_ranks": [4, 5], "group_name": "tp", "group_rank": 1}}
    assert (r.stdout, r.stderr) == (f"0o640\n{json.dumps(groups)}\n", "")


def test_without_the_extension_it_says_so(programs):
    """As in a free-threaded interpreter, or with half an installation."""
    code = """
import sys
sys.modules["sonde._monitor"] = None
from msmonitor import ActivityKind, Monitor, PyDynamicMonitorProxy
import sonde
p, m = PyDynamicMonitorProxy(), Monitor()
print(p.init_dyno(0), repr(p.poll_dyno()), m.get_result())
p.enable_dyno_npu_monitor({}); p.update_profiler_status({}); p.finalize_dyno()
m.start([ActivityKind.Kernel]); m.stop(); m.save("x"); sonde.step()
"""
    r = programs.run(code)
    assert r.stdout == "False '' {}\n"
    assert r.stderr.count("nothing can be monitored in this interpreter") == 1


def test_without_a_device_nothing_is_raised(programs):
    """The first program of docs/monitor-python.md, where there is neither MSPTI nor CUPTI."""
    code = """
from msmonitor import ActivityKind, Monitor
print(Monitor().get_result())
with Monitor([ActivityKind.Kernel, ActivityKind.Communication]) as monitor:
    pass
for kernel in monitor.get_result()[ActivityKind.Kernel]:
    print(kernel.name, kernel.endNs - kernel.startNs)
monitor.save("steps.xlsx")
print(monitor.get_result() == {ActivityKind.Kernel: [], ActivityKind.Communication: []})
"""
    r = programs.run(code, LD_LIBRARY_PATH="")
    assert r.stdout == "{}\nTrue\n"
    assert "neither libmspti.so nor libcupti" in r.stderr and "sonde monitor" in r.stderr
    assert "start() has not succeeded" in r.stderr
    assert "Traceback" not in r.stderr and not (programs.tmp / "steps.xlsx").exists()


# --- PyDynamicMonitorProxy ---

WRONG = """
from msmonitor import PyDynamicMonitorProxy
p = PyDynamicMonitorProxy()
for call, given in [
    (p.init_dyno, "0"), (p.init_dyno, 1.5), (p.init_dyno, None), (p.init_dyno, 1 << 31),
    (p.enable_dyno_npu_monitor, None), (p.enable_dyno_npu_monitor, "NPU_MONITOR_START=true"),
    (p.enable_dyno_npu_monitor, {"NPU_MONITOR_START": True}),
    (p.enable_dyno_npu_monitor, {1: "true"}),
    (p.update_profiler_status, {"profiler_status": 1}), (p.update_profiler_status, []),
    (p.set_cluster_config_data, {"parallel_group_info": {}}),
]:
    try:
        call(given)
        print("taken:", given)
    except TypeError:
        pass
try:
    p.init_dyno()
except TypeError:
    print("done")
"""


@pytest.mark.parametrize("python", ENDS)
def test_wrong_types_are_type_errors(programs, python):
    r = programs.run(WRONG, python=python)
    assert (r.stdout, r.stderr) == ("done\n", "")


START = {
    "NPU_MONITOR_START": "true",
    "NPU_MONITOR_STOP": "false",
    "REPORT_INTERVAL_S": "1",
    "DURATION": "0",
    "MSPTI_ACTIVITY_KIND": "Kernel,Marker",
    "NPU_MONITOR_LOG_FILE": "",
    "NPU_MONITOR_EXPORT_TYPE": "DB",
}


@pytest.mark.parametrize(
    "key, value",
    [
        ("NPU_MONITOR_START", "yes"),
        ("NPU_MONITOR_STOP", ""),
        ("REPORT_INTERVAL_S", "-1"),
        ("REPORT_INTERVAL_S", "4294967296"),
        ("DURATION", "1e3"),
        ("MSPTI_ACTIVITY_KIND", "Kernel,Colonel"),
        ("NPU_MONITOR_LOG_FILE", "x" * 4097),
        ("NPU_MONITOR_EXPORT_TYPE", "csv"),
        ("NPU_MONITOR_FILTER", "Kernel:a\nNPU_MONITOR_STOP=true"),
        ("NPU_MONITOR_LOG_FILE", "/tmp/\0x"),
        ("NPU_MONITOR_LOG_FILE", "\udcff"),
        *((key, None) for key in START),
    ],
)
def test_orders_that_are_none_are_said_and_ignored(programs, key, value):
    order = {k: v for k, v in START.items() if k != key}
    if value is not None:
        order[key] = value
    code = f"""
import json
from msmonitor import PyDynamicMonitorProxy
from sonde import _monitor
PyDynamicMonitorProxy().enable_dyno_npu_monitor(json.loads({json.dumps(json.dumps(order))}))
print(_monitor.running())
"""
    r = programs.run(code, MSMONITOR_LOG_PATH="logs")
    assert r.stdout == "False\n"
    (line,) = r.stderr.splitlines()
    assert line.startswith("[msmonitor] Error: npu-monitor: ")
    assert value == "\udcff" or key in line
    (log,) = (programs.tmp / "logs/msmonitor_log").iterdir()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d Error: npu-monitor: ", log.read_text())
    assert log.read_text().strip().endswith(line.partition("Error: ")[2])


def test_without_a_daemon(programs):
    code = """
from IPCMonitor import PyDynamicMonitorProxy
p = PyDynamicMonitorProxy()
print(p.init_dyno(0), repr(p.poll_dyno()), repr(p.poll_dyno()))
p.update_profiler_status({"profiler_status": "0"})
p.finalize_dyno()
p.finalize_dyno()
"""
    r = programs.run(code, KINETO_IPC_SOCKET_DIR=programs.tmp, SONDE_DAEMON="@nobody-is-there")
    assert r.stdout == "False '' ''\n"
    assert "cannot register with the daemon" in r.stderr
    assert "dynolog --enable-ipc-monitor" in r.stderr
    assert r.stderr.count("does not answer") <= 1


# --- as torch_npu hosts it ---

# One process per node is forked to talk with the daemon; it puts orders into shared memory: the
# time, then JSON. Every rank looks there at each step. Values in that JSON are texts, but is_valid.
HOST = NPU + r"""
import json, mmap, multiprocessing, struct
from IPCMonitor import PyDynamicMonitorProxy

SIZE = 1 << 20
proxy = PyDynamicMonitorProxy()
rank, shared = int(sys.argv[1]), sys.argv[2]
with open(shared, "r+b") as f:
    memory = mmap.mmap(f.fileno(), SIZE)


def ask():
    with open("/proc/self/comm", "w") as f:
        f.write("DynMonitorProc")
    if not proxy.init_dyno(rank):
        sys.exit("no daemon")
    last = 0
    while os.getppid() == parent:
        order = proxy.poll_dyno()
        if order:
            found = {"is_valid": True}
            for line in order.split("\n"):
                parts = line.split("=")
                if len(parts) == 2:
                    found[parts[0].strip()] = parts[1].strip()
            last = max(last + 1, int(time.time()))
            text = json.dumps(found).encode()
            memory[4:SIZE] = text + b" " * (SIZE - 4 - len(text))
            memory[0:4] = struct.pack("<I", last)
        time.sleep(0.1)
    proxy.update_profiler_status({"profiler_status": "-1"})
    proxy.finalize_dyno()


parent = os.getpid()
if rank == 0:
    multiprocessing.get_context("fork").Process(target=ask, daemon=True).start()
npu = Npu(rank)
seen = told = steps = 0
print("ready", flush=True)
while not os.path.exists(shared + ".end"):
    npu.step()
    steps += 1
    (when,) = struct.unpack("<I", memory[0:4])
    if when > seen:
        seen = when
        order = json.loads(memory[4:SIZE].decode())
        if "NPU_MONITOR_START" in order:
            proxy.enable_dyno_npu_monitor({k: str(v) for k, v in order.items()})
    if rank == 0 and time.monotonic() - told > 1:
        told = time.monotonic()
        proxy.update_profiler_status({"profiler_status": "0", "current_step": str(steps)})
    time.sleep(0.005)
print("done", flush=True)
"""


@pytest.mark.parametrize("python", SOME)
def test_as_torch_npu_hosts_it(build, programs, tmp_path, python):
    shared = tmp_path / "shared"
    shared.write_bytes(b"\0" * 4 + b" " * ((1 << 20) - 4))
    with Daemon(build, tmp_path, "--use_JSON", ipc=True) as d:

        def status():
            return d.call({"fn": "getStatus"})

        env = {"KINETO_IPC_SOCKET_DIR": d.ipc_dir, "MSMONITOR_USE_DAEMON": 1}
        ranks = [programs.start(HOST, r, shared, python=python, RANK=r, **env) for r in (0, 1)]
        for p in ranks:
            assert p.stdout.readline() == "ready\n", p.communicate()
        wait_until(lambda: status()["npumonitor"] == "Idle" and status()["current_step"] > 0)
        assert status()["nputrace"] == "Idle"

        words = ["--report-interval-s", 1, "--mspti-activity-kind", "Kernel,Marker"]
        r = d.ctl("npu-monitor", "--npu-monitor-start", *words)
        assert r.returncode == 0, r.stdout + r.stderr
        wait_until(lambda: status()["npumonitor"] == "Running")
        for device in (0, 1):
            d.wait_log(rf'"deviceId":"?{device}"?,.*"kind":"Kernel"')
        d.wait_log(r'"kind":"Marker"')

        r = d.ctl("npu-monitor", "--npu-monitor-stop")
        assert r.returncode == 0, r.stdout + r.stderr
        wait_until(lambda: status()["npumonitor"] == "Idle")
        assert status()["nputrace"] == "Idle"

        shared.with_suffix(".end").touch()
        for p in ranks:
            out, err = p.communicate(timeout=30)
            # A daemon that got no processor for longer than a rank waits is a word, and no more.
            late = "[msmonitor] Warn: the daemon does not answer: Connection timed out\n"
            assert (p.returncode, out, err.replace(late, "")) == (0, "done\n", "")
        wait_until(lambda: status()["npumonitor"] == "Uninitialized")


# --- as MindSpore hosts it ---

# Its process that talks with the daemon sleeps after a request alone: it asks again at once after
# an empty answer. Its ranks hand over the latest request at every step.
MINDSPORE = NPU + r"""
import json, multiprocessing
from IPCMonitor import PyDynamicMonitorProxy

proxy = PyDynamicMonitorProxy()
place = sys.argv[1]


def ask():
    if not proxy.init_dyno(0):
        sys.exit("no daemon")
    polls, began = 0, time.monotonic()
    while not os.path.exists(place + ".end"):
        order = proxy.poll_dyno()
        polls += 1
        if order:
            lines = (line.split("=") for line in order.split("\n"))
            found = {p[0].strip(): p[1].strip() for p in lines if len(p) == 2}
            with open(place + ".new", "w") as f:
                json.dump(found, f)
            os.rename(place + ".new", place)
    print(json.dumps([polls, time.monotonic() - began]), flush=True)


child = multiprocessing.get_context("fork").Process(target=ask)
child.start()
npu, step, told = Npu(), 0, 0
while not os.path.exists(place + ".end"):
    npu.step()
    step += 1
    if os.path.exists(place):
        with open(place) as f:
            proxy.enable_dyno_npu_monitor(json.load(f))
    if time.monotonic() - told > 1:
        told = time.monotonic()
        proxy.update_profiler_status({"profiler_status": "0", "current_step": str(step)})
    time.sleep(0.005)
child.join()
"""


def test_as_mindspore_hosts_it(build, programs, tmp_path):
    place = tmp_path / "order"
    with Daemon(build, tmp_path, ipc=True) as d:
        env = {"KINETO_IPC_SOCKET_DIR": d.ipc_dir, "MSMONITOR_USE_DAEMON": 1, "RANK_ID": 0}
        p = programs.start(MINDSPORE, place, **env)

        def status():
            return d.call({"fn": "getStatus"})

        wait_until(lambda: status()["current_step"] > 0)
        log = tmp_path / "log"
        words = ["--duration", 0.5, "--mspti-activity-kind", "Kernel", "--log-file", log]
        r = d.ctl("npu-monitor", "--npu-monitor-start", *words)
        assert r.returncode == 0, r.stdout + r.stderr
        seen = []

        def state():
            seen.append(status())
            return seen[-1]["npumonitor"]

        wait_until(lambda: state() == "Running")
        wait_until(lambda: state() == "Idle")
        over = seen[-1]["current_step"]
        # its time is over, and the same request at every further step does not begin it again
        wait_until(lambda: state() and seen[-1]["current_step"] > over)
        assert {s["npumonitor"] for s in seen[-3:]} == {"Idle"}
        assert min(s["current_step"] for s in seen) > 0
        place.with_suffix(".end").touch()
        out, err = p.communicate(timeout=30)
        assert (p.returncode, err) == (0, "")
    assert len(list(log.rglob("*.db"))) == 1
    polls, seconds = json.loads(out)
    assert polls <= seconds / 0.01 + 5, "an empty answer takes as long as it did"


# --- what is known about the job ---

RANK = """
import sys, types
{setup}
from msmonitor import _job
print(_job.rank())
"""


@pytest.mark.parametrize(
    "env, setup, rank",
    [
        ({}, "", -1),
        ({"RANK": "3", "RANK_ID": "4"}, "", 3),
        ({"RANK_ID": "4"}, "", 4),
        ({"RANK": "three", "RANK_ID": "0"}, "", 0),
        ({"RANK": "-1", "RANK_ID": "99999999999"}, "", -1),
        ({"RANK": "\u0663"}, "", -1),
        # frameworks that are there but not in use, or that fail, know nothing
        ({}, "sys.modules['torch.distributed'] = types.ModuleType('d')", -1),
        ({}, "sys.modules['mindspore.communication'] = types.ModuleType('c')", -1),
        (
            {},
            "m = sys.modules['mindspore.communication'] = types.ModuleType('c')\n"
            "m.get_rank = lambda: 7",
            7,
        ),
    ],
)
def test_the_rank(programs, env, setup, rank):
    assert programs.run(RANK.format(setup=setup), **env).stdout == f"{rank}\n"


@pytest.mark.deadline(120)
@pytest.mark.parametrize("torch", torches.every_torch())
def test_the_groups_are_in_the_files(programs, tmp_path, torch):
    """Of torch.distributed as it is, and what a program says itself."""
    code = (
        NPU
        + """
import json
import torch.distributed as dist
from msmonitor import PyDynamicMonitorProxy
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=0,
                        world_size=1)
some = dist.new_group([0])
npu, proxy = Npu(), PyDynamicMonitorProxy()
order = json.loads(sys.argv[1])
proxy.enable_dyno_npu_monitor(order)
npu.step()
if len(sys.argv) > 2:
    proxy.set_cluster_config_data({"parallel_group_info": sys.argv[2], "other": "x"})
    dist.destroy_process_group()
proxy.enable_dyno_npu_monitor(dict(order, NPU_MONITOR_START="false", NPU_MONITOR_STOP="True"))
"""
    )
    for n, said in enumerate(([], ['{"mine": {"group_rank": 5}}'])):
        (tmp_path / "store").unlink() if (tmp_path / "store").exists() else None
        out = tmp_path / f"out{n}"
        order = dict(START, NPU_MONITOR_LOG_FILE=str(out), NPU_MONITOR_EXPORT_TYPE="Jsonl")
        programs.run(code, json.dumps(order), *said, python=torch.path)
        (file,) = out.iterdir()
        assert re.fullmatch(r"msmonitor_\d+_\d{17}_0\.jsonl", file.name)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert [x["name"] for x in lines if x["kind"] == "Kernel"].count("Add") == 1
        (groups,) = [json.loads(x["value"]) for x in lines if x["kind"] == "parallel_group_info"]
        if said:
            assert groups == {"mine": {"group_rank": 5}}
        else:
            assert sorted(g["group_name"] for g in groups.values())[-1] == "default_group"
            assert len(groups) == 2
            assert all(g["group_rank"] == 0 and g["global_ranks"] == [0] for g in groups.values())
