# SPDX-License-Identifier: MulanPSL-2.0
"""msmonitor.Monitor: what a program records itself, and the workbook of it."""

import json
import stat
import sys

import pip_packages
import pytest
from monitor_programs import ENDS, NPU, PER_MINOR, Programs


@pytest.fixture
def programs(build, tmp_path):
    made = Programs(build, tmp_path)
    yield made
    made.end()


# --- Monitor ---

MONITOR = NPU + """
from msmonitor import ActivityKind, Monitor

K = ActivityKind
npu = Npu(1)
npu.step()
monitor = Monitor()
monitor.start([K.Kernel, K.Marker, K.API])
assert monitor.running
for _ in range(20):
    npu.step()
monitor.stop()
npu.step()
assert not monitor.running
found = monitor.get_result()
"""


@pytest.mark.parametrize("python", PER_MINOR)
def test_what_was_recorded_is_what_ran(programs, python):
    r = programs.run(
        MONITOR
        + """
assert set(found) == {K.Kernel, K.Marker, K.API}, set(found)
kernels, marks, calls = found[K.Kernel], found[K.Marker], found[K.API]
assert sorted(k.name for k in kernels) == sorted(
    20 * ([f"MatMul_{i}" for i in range(5)] + ["Add"])), len(kernels)
assert all(k.endNs > k.startNs and k.deviceId == 1 and k.type for k in kernels)
assert all(type(k).__name__ == "Kernel" and repr(k).startswith("Kernel(name=") for k in kernels)
k = kernels[0]
assert k.to_tuple() == (k.name, k.startNs / 1000, k.endNs / 1000, k.deviceId, k.streamId,
                        k.correlationId, k.type)
hosts = [m for m in marks if m.sourceKind == "Host"]
devices = [m for m in marks if m.sourceKind == "Device"]
assert len(hosts) == len(devices) == 20 and {m.name for m in marks} == {"train"}
assert {m.id for m in hosts} == {m.id for m in devices}
assert all(m.pid == os.getpid() and m.tid and m.deviceId == m.streamId == 0 for m in hosts)
assert all(m.deviceId == 1 and m.pid == m.tid == 0 for m in devices)
assert calls and {c.pid for c in calls} == {os.getpid()}
launches = {c.correlationId: c for c in calls}
assert all(launches[k.correlationId].startNs <= k.startNs for k in kernels)
assert monitor.get_result() == found and monitor.get_result() is not found
print("done")
""",
        python=python,
    )
    assert (r.stdout, r.stderr) == ("done\n", "")
    assert programs.left_in_scratch() == []


def test_one_monitor_at_a_time(programs):
    r = programs.run(
        NPU
        + """
from msmonitor import ActivityKind, Monitor, PyDynamicMonitorProxy
K = ActivityKind
npu, monitor = Npu(), Monitor()
assert Monitor() is monitor
monitor.start([K.Kernel])
npu.step()
monitor.start([K.Marker])              # refused, and what it has stays
with Monitor([K.Marker]):              # the same
    npu.step()
assert Monitor().running
Monitor().stop()
assert len(Monitor().get_result()[K.Kernel]) == 12
monitor.start([K.Marker])              # forgets
npu.step()
monitor.stop()
assert list(monitor.get_result()) == [K.Marker]

order = dict(NPU_MONITOR_START="true", NPU_MONITOR_STOP="false", REPORT_INTERVAL_S="1",
             DURATION="0", MSPTI_ACTIVITY_KIND="Kernel", NPU_MONITOR_LOG_FILE=os.getcwd(),
             NPU_MONITOR_EXPORT_TYPE="Jsonl")
PyDynamicMonitorProxy().enable_dyno_npu_monitor(order)
monitor.start([K.Kernel])              # somebody else's runs
assert not monitor.running and len(monitor.get_result()[K.Marker]) == 2
monitor.stop()                         # and goes on
npu.step()
PyDynamicMonitorProxy().enable_dyno_npu_monitor(
    dict(order, NPU_MONITOR_START="false", NPU_MONITOR_STOP="true"))
monitor.start([K.Kernel])
npu.step()
monitor.stop()
assert len(monitor.get_result()[K.Kernel]) == 6
print("done")
"""
    )
    assert r.stdout == "done\n"
    assert [line.split()[1:3] for line in r.stderr.splitlines()] == [
        ["Warn:", f"Monitor.{name}():"] for name in ("start", "start", "stop")
    ]
    (file,) = programs.tmp.glob("msmonitor_*.jsonl")
    assert file.read_text().count('"kind":"Kernel"') == 6


def test_while_it_runs(programs):
    """Results at any time; and a program that ends without stop() leaves nothing behind."""
    r = programs.run(
        NPU
        + """
from msmonitor import ActivityKind, Monitor
K = ActivityKind
npu = Npu()
monitor = Monitor()
with monitor:                     # no kinds given: starts nothing
    assert not monitor.running
monitor = Monitor([K.Kernel])
try:
    with monitor:
        npu.step()
        end = time.monotonic() + 20
        while len(monitor.get_result()[K.Kernel]) < 6:
            assert time.monotonic() < end
            time.sleep(0.05)
        raise KeyError("the job's own")
except KeyError:
    assert not monitor.running
monitor.start([K.Kernel])
npu.step()
print("done")
"""
    )
    assert (r.stdout, r.stderr) == ("done\n", "")
    assert programs.left_in_scratch() == []


def test_a_forked_process_does_not_end_it(programs):
    r = programs.run(
        NPU
        + """
from msmonitor import ActivityKind, Monitor
K = ActivityKind
npu, monitor = Npu(), Monitor([K.Kernel])
with monitor:
    npu.step()
    child = os.fork()
    if not child:
        assert not monitor.running
        monitor.stop()
        sys.exit(0)               # with everything that happens then
    assert os.waitpid(child, 0)[1] == 0
    assert monitor.running
    npu.step()
assert len(monitor.get_result()[K.Kernel]) == 12
print("done")
"""
    )
    assert r.stdout == "done\n"
    assert r.stderr.count("\n") == 1 and "Monitor.stop(): nothing runs" in r.stderr
    assert programs.left_in_scratch() == []


@pytest.mark.parametrize("python", ENDS)
def test_wrong_use_is_said_and_changes_nothing(programs, python):
    r = programs.run(
        """
from msmonitor import ActivityKind, Monitor
m = Monitor()
for bad in ([], None, "Kernel", ActivityKind.Kernel, [2], ["Kernel"], [ActivityKind.Kernel, None]):
    m.start(bad)
assert m.get_result() == {}
m.save("x.xlsx")
for bad in (None, "", 5, b"x", "a\\0b"):
    m.save(bad)
m.stop()
""",
        python=python,
    )
    lines = r.stderr.splitlines()
    assert [line.split()[1:3] for line in lines] == (
        7 * [["Error:", "Monitor.start():"]]
        + [["Warn:", "Monitor.get_result():"], ["Warn:", "Monitor.save():"]]
        + 5 * [["Error:", "Monitor.save():"]]
        + [["Warn:", "Monitor.stop():"]]
    )
    assert not list(programs.tmp.glob("*.xlsx"))


def test_without_a_device(programs):
    """Nobody can tell activities here: said, nothing runs."""
    code = """
from msmonitor import ActivityKind, Monitor
with Monitor([ActivityKind.Kernel]) as m:
    print(m.running, m.get_result())
"""
    r = programs.run(code, LD_LIBRARY_PATH="/nonexistent")
    assert r.stdout == "False {<ActivityKind.Kernel: 2>: []}\n"
    assert "libmspti" in r.stderr and "libcupti" in r.stderr


# --- save ---

HEADERS = {
    "API": ["Name", "Start(us)", "End(us)", "Pid", "Tid", "Correlation ID", "Duration(us)"],
    "Kernel": [
        "Name", "Start(us)", "End(us)", "Device ID", "Stream ID", "Correlation ID", "Type",
        "Duration(us)",
    ],
    "Marker": [
        "Name", "SourceKind", "Domain", "ID", "Start(us)", "End(us)", "Pid", "Tid", "Device ID",
        "Stream ID", "Duration(us)",
    ],
}  # fmt: skip


def workbook(path):
    sys.path.insert(0, str(pip_packages.need("openpyxl")))
    try:
        import openpyxl
    finally:
        sys.path.pop(0)
    book = openpyxl.load_workbook(path, read_only=True)
    return {s.title: [[c.value for c in row] for row in s.rows] for s in book.worksheets}


def test_a_workbook(programs, tmp_path):
    code = (
        MONITOR
        + """
import json
os.umask(0o077)
monitor.save("new/folder/first")
monitor.save("second.xlsx")
monitor.save("second.xlsx")
print(json.dumps({k.name: [r.to_tuple() for r in v] for k, v in found.items()}))
"""
    )
    r = programs.run(code)
    assert r.stderr == ""
    first = tmp_path / "new/folder/first.xlsx"
    assert stat.S_IMODE(first.stat().st_mode) == 0o640
    assert [stat.S_IMODE(p.stat().st_mode) for p in (first.parent, first.parents[1])] == 2 * [0o750]
    assert [p.name for p in first.parent.iterdir()] == ["first.xlsx"]
    sheets, found = workbook(first), json.loads(r.stdout)
    assert sheets == workbook(tmp_path / "second.xlsx")
    assert set(sheets) == {"Kernel", "Marker", "API"}
    for kind, rows in sheets.items():
        assert rows[0] == HEADERS[kind]
        start, end = rows[0].index("Start(us)"), rows[0].index("End(us)")
        assert len(rows) - 1 == len(found[kind])
        for row, told in zip(rows[1:], found[kind]):
            assert row[0] == told[0]
            assert all(isinstance(cell, str) for cell in row[:-1])
            for at in (start, end):
                assert float(row[at]) == pytest.approx(told[at], abs=1)
            assert row[-1] == pytest.approx(told[end] - told[start], abs=1)


def test_what_is_in_the_way_is_said(programs, tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "link.xlsx").symlink_to("precious")
    (tmp_path / "dir.xlsx").mkdir()
    (tmp_path / "file").write_text("")
    code = (
        MONITOR
        + """
for name in ("link", "dir.xlsx", "file/x", "/proc/x"):
    monitor.save(name)
print("done")
"""
    )
    r = programs.run(code)
    assert r.stdout == "done\n"
    assert (tmp_path / "precious").read_text() == "precious"
    lines = r.stderr.splitlines()
    assert len(lines) == 4 and all("Monitor.save(): nothing was saved: " in s for s in lines)
    assert "symbolic link" in lines[0] and "directory" in lines[1]
    assert not list(tmp_path.glob(".msmonitor_*"))


def test_an_empty_workbook(programs, tmp_path):
    code = """
from msmonitor import ActivityKind, Monitor
with Monitor([ActivityKind.Kernel]) as m:
    pass
m.save("empty")
print(m.get_result())
"""
    r = programs.run(NPU + "npu = Npu()\n" + code)
    assert r.stdout == "{<ActivityKind.Kernel: 2>: []}\n" and r.stderr == ""
    assert (tmp_path / "empty.xlsx").exists()
    for rows in workbook(tmp_path / "empty.xlsx").values():
        assert len(rows) <= 1


# --- many ---


def test_results_are_read_in_linear_time(programs):
    """Ten times as many records take about ten times as long, not a hundred times."""
    r = programs.run(
        """
import json, os, time
from msmonitor import _results, _records

def seconds(n):
    results = _results.Results()
    line = {"correlationId": 1, "deviceId": 1, "endNs": 2, "kind": "Kernel", "name": "MatMul",
            "startNs": 1, "streamId": 2, "type": "KERNEL_AICORE"}
    with open(os.path.join(results.dir, "a.jsonl"), "w") as f:
        f.writelines(json.dumps(line) + "\\n" for _ in range(n))
        f.write('{"kind":"Kern')  # being written
    best = 1e9
    for _ in range(3):
        begin = time.process_time()
        assert sum(1 for _ in results.records()) == n
        best = min(best, time.process_time() - begin)
    results.remove()
    return best

small, large = seconds(5000), seconds(50000)
assert large < 40 * small, (small, large)
print("done")
"""
    )
    assert r.stdout == "done\n"
