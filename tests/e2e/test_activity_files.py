# SPDX-License-Identifier: MulanPSL-2.0
"""Files of activities: every form says the same, and `sonde activity show` says what is in them."""

import collections
import contextlib
import csv
import json
import os
import pathlib
import random
import re
import sqlite3
import stat
import subprocess
import xml.etree.ElementTree
import zipfile

import pytest

from capabilities import needs
from recording import clean_env

T0 = 1794723775000000000
MANGLED = "_ZN2at6native29vectorized_elementwise_kernelILi4EEEvif"
SHOWN = "void at::native::vectorized_elementwise_kernel<4>(int, float)"
SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def line(**keys):
    return json.dumps(keys, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"


def activities(rank=0, n=400):
    """Lines as msmonitor writes them: launches, kernels on one stream, collectives, marks."""
    pick = random.Random(rank)
    at = T0
    for i in range(n):
        took = pick.randrange(1000, 20000)
        name = pick.choice(["MatMul", "Softmax, \"große\"", MANGLED])
        where = {"processId": 100 + rank, "threadId": 200 + rank}
        yield dict(kind="RuntimeAPI", name="launch", startNs=at - 500, endNs=at - 100,
                   correlationId=i + 1, **where)
        yield dict(kind="Kernel", name=name, startNs=at, endNs=at + took, deviceId=rank,
                   streamId=2, type="KERNEL_AICORE", correlationId=i + 1)
        if i % 50 == 0:
            yield dict(kind="Communication", name="hcom_allReduce_", startNs=at + took // 2,
                       endNs=at + took + 5000, deviceId=rank, streamId=9, dataType="FP32",
                       count=1 << 60, commName="group_name_0", algType="RING",
                       correlationId=(1 << 63) + i)
            yield dict(kind="Marker", sourceKind="Host", name=f"step {i // 50}", startNs=at,
                       endNs=at + took, domain="default", id=i, **where)
            yield dict(kind="Marker", sourceKind="Device", name=f"step {i // 50}", startNs=at + 7,
                       endNs=at + took, domain="default", deviceId=rank, streamId=2, id=i)
            at += 6000
        at += took + pick.randrange(3000)


class Files:
    def __init__(self, build, tmp_path):
        self.build, self.tmp = build, tmp_path
        self.env = clean_env(tmp_path)

    def sonde(self, *words, **more):
        return subprocess.run([self.build / "bin/sonde", "activity", *map(str, words)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env,
                              universal_newlines=True, timeout=60, **more)

    def good(self, *words):
        """What it prints; an export says in one line on stderr what it has written."""
        r = self.sonde(*words)
        assert r.returncode == 0, r.stderr
        said = r"sonde activity export: .*\n" if words[0] == "export" else ""
        assert re.fullmatch(said, r.stderr), r.stderr
        return r.stdout

    def show(self, *words):
        return json.loads(self.good("show", "--json", *words))

    def jsonl(self, rank=0, end="", **more):
        directory = self.tmp / "in"
        directory.mkdir(exist_ok=True)
        path = directory / f"msmonitor_{100 + rank}_2026111522000000{rank}_{rank}.jsonl"
        text = "".join(line(**a) for a in activities(rank, **more))
        path.write_text(text + line(device=[rank], kind="rank_device_map", rank=rank) + end)
        return path

    def export(self, form, *paths):
        """The one file that is written."""
        out = self.tmp / f"out-{form}"
        if form in ("chrome", "xlsx", "csv"):
            out = out.with_suffix({"chrome": ".json"}.get(form, "." + form))
        assert self.good("export", f"--format={form}", "-o", out, *paths) == ""
        if not out.is_dir():
            return out
        (only,) = out.glob(f"*.{form}")
        return only


@pytest.fixture
def files(build, tmp_path):
    return Files(build, tmp_path)


def sheets(path):
    """{name: rows of cells} of a workbook, by its own XML."""
    book = {}
    with zipfile.ZipFile(path) as z:
        names = [s.get("name") for s in xml.etree.ElementTree.fromstring(
            z.read("xl/workbook.xml")).iter(SHEET + "sheet")]
        for i, name in enumerate(names):
            root = xml.etree.ElementTree.fromstring(z.read(f"xl/worksheets/sheet{i + 1}.xml"))
            book[name] = [
                [("".join(t.text or "" for t in c.iter(SHEET + "t"))
                  if c.get("t") == "inlineStr" else float(c.find(SHEET + "v").text))
                 for c in row.iter(SHEET + "c")] for row in root.iter(SHEET + "row")]
    return book


def kernels_of(lines):
    return [(k["name"], k["startNs"], k["endNs"]) for k in lines if k["kind"] == "Kernel"]


WANT = [dict(a) for a in activities()]


def test_db_says_the_same(files):
    db = sqlite3.connect(files.export("db", files.jsonl()))
    rows = db.execute("SELECT s.value,t.startNs,t.endNs FROM TASK t,COMPUTE_TASK_INFO c,STRING_IDS s "
                      "WHERE c.globalTaskId=t.globalTaskId AND s.id=c.name ORDER BY t.startNs")
    assert rows.fetchall() == kernels_of(WANT)
    marks = db.execute("SELECT s.value,m.connectionId FROM MSTX_EVENTS m,STRING_IDS s "
                       "WHERE s.id=m.message").fetchall()
    assert marks == [(a["name"], a["id"] + 4000000000) for a in WANT
                     if a.get("sourceKind") == "Host"]
    ops = db.execute("SELECT s.value,c.count,c.connectionId FROM COMMUNICATION_OP c,STRING_IDS s "
                     "WHERE s.id=c.opName").fetchall()
    assert ops == [(f"hcom_allReduce__612_{k}_1", 1 << 60, -(1 << 63) + 50 * k) for k in range(8)]
    assert db.execute("SELECT * FROM RANK_DEVICE_MAP").fetchall() == [(0, 0)]
    assert db.execute("SELECT lost FROM ACTIVITY_LOSS").fetchall() == [(0,)]


def test_jsonl_comes_back_to_the_byte(files):
    path = files.jsonl()
    assert files.export("jsonl", path).read_bytes() == path.read_bytes()


def test_db_and_jsonl_are_read_alike(files):
    path = files.jsonl()
    from_jsonl, from_db = files.show(path), files.show(files.export("db", path))
    for key in ("kernels", "communication", "calls", "marks", "kinds", "activities", "busy_share"):
        assert from_jsonl[key] == from_db[key], key


def test_csv(files):
    with open(files.export("csv", files.jsonl()), newline="") as f:
        rows = list(csv.DictReader(f))
    assert len(rows) == len(WANT)
    assert [(r["name"], int(r["startNs"]), int(r["endNs"])) for r in rows
            if r["kind"] == "Kernel"] == kernels_of(WANT)
    assert all(int(r["durationNs"]) == int(r["endNs"]) - int(r["startNs"]) for r in rows)
    assert {r["dataType"] for r in rows if r["kind"] == "Communication"} == {"FP32"}


def test_a_name_that_a_spreadsheet_would_calculate(files):
    """In a table for people it is a text; what other programs read has it as it is."""
    text = pathlib.Path(files.jsonl()).read_text()
    bad = files.tmp / "formula.jsonl"
    bad.write_text(text.replace('"MatMul"', '"=cmd|\' /C calc\'!A0"'))
    with open(files.export("csv", bad), newline="") as f:
        names = {r["name"] for r in csv.DictReader(f)}
    assert "'=cmd|' /C calc'!A0" in names and not [n for n in names if n[:1] in "=+-@\t\r" and n]
    assert '"=cmd|' in pathlib.Path(files.export("jsonl", bad)).read_text()


def test_csv_tells_ranks_apart(files):
    """Kernels of two ranks that both see device 0 as theirs."""
    for rank in range(2):
        path = files.jsonl(rank, n=5)
        path.write_text(path.read_text().replace('"deviceId":1', '"deviceId":0'))
    with open(files.export("csv", files.tmp / "in"), newline="") as f:
        kernels = [r for r in csv.DictReader(f) if r["kind"] == "Kernel"]
    assert [(k["processId"], k["rank"]) for k in kernels] == [("100", "0")] * 5 + [("101", "1")] * 5


@pytest.mark.parametrize("form", ["db", "jsonl"])
def test_each_process_gets_its_own_file(files, form):
    for rank in range(4):
        files.jsonl(rank)
    out = files.tmp / "all.db"
    r = files.sonde("export", f"--format={form}", "-o", out, files.tmp / "in")
    assert r.returncode == 0 and r.stdout == "" and r.stderr.count("\n") == 1
    assert f"of 4 processes are in the directory '{out}' now, a file for each process" in r.stderr
    names = sorted(p.name for p in out.iterdir())
    assert [re.sub(r"_\d{17}_", "_", n) for n in names] == [
        f"msmonitor_{100 + rank}_{rank}.{form}" for rank in range(4)]
    before, after = files.show(files.tmp / "in"), files.show(out)
    assert [(p["pid"], p["rank"]) for p in after["processes"]] == [(100 + n, n) for n in range(4)]
    for key in ("kernels", "communication", "kinds", "activities", "busy_share"):
        assert before[key] == after[key], key


def test_an_export_says_what_it_wrote(files):
    path = files.jsonl(n=3)
    out = files.tmp / "book"
    count = len(list(activities(n=3)))
    r = files.sonde("export", "--format=xlsx", "-o", out, path)
    assert r.stderr == f"sonde activity export: {count} activities are in '{out}.xlsx' now\n"
    path.write_text("")
    r = files.sonde("export", "--format=db", "-o", files.tmp / "db", path)
    assert r.returncode == 0 and "there are no activities: nothing was written" in r.stderr


def test_xlsx(files):
    path = files.export("xlsx", files.jsonl())
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    book = sheets(path)
    assert book["Kernel"][0] == ["Name", "Start(us)", "End(us)", "Device ID", "Stream ID",
                                 "Correlation ID", "Type", "Duration(us)"]
    assert book["RuntimeAPI"][0] == ["Name", "Start(us)", "End(us)", "Pid", "Tid",
                                     "Correlation ID", "Duration(us)"]
    assert book["Communication"][0] == ["Name", "Start(us)", "End(us)", "Device ID", "Stream ID",
                                        "Count", "DataType", "CommName", "AlgType",
                                        "Correlation ID", "Duration(us)"]
    assert book["Marker"][0] == ["Name", "SourceKind", "Domain", "ID", "Start(us)", "End(us)",
                                 "Pid", "Tid", "Device ID", "Stream ID", "Duration(us)"]
    kernels = [a for a in WANT if a["kind"] == "Kernel"]
    assert book["Kernel"][1:] == [
        [k["name"], str(k["startNs"] / 1000.0), str(k["endNs"] / 1000.0), str(k["deviceId"]),
         str(k["streamId"]), str(k["correlationId"]), k["type"],
         (k["endNs"] - k["startNs"]) / 1000.0] for k in kernels]
    host = [r for r in book["Marker"] if r[1] == "Host"]
    assert host[0][6:10] == ["100", "200", "0", "0"]
    assert [r[3] for r in host] == [str(50 * i) for i in range(8)]


def test_xlsx_gets_its_suffix_and_refuses_links(files):
    source = files.jsonl(n=5)
    files.good("export", "--format=xlsx", "-o", files.tmp / "new/dir/book", source)
    assert zipfile.is_zipfile(files.tmp / "new/dir/book.xlsx")
    assert stat.S_IMODE(os.stat(files.tmp / "new").st_mode) == 0o750 & ~0o22
    (files.tmp / "target").write_text("mine")
    (files.tmp / "link.xlsx").symlink_to(files.tmp / "target")
    r = files.sonde("export", "--format=xlsx", "-o", files.tmp / "link.xlsx", source)
    assert r.returncode == 1 and "symbolic link" in r.stderr
    assert (files.tmp / "target").read_text() == "mine"
    assert not list(files.tmp.glob("*.tmp"))


def test_chrome(files):
    trace = json.loads(files.export("chrome", files.jsonl()).read_text())
    base = trace["baseTimeNanoseconds"]
    events = collections.defaultdict(list)
    for e in trace["traceEvents"]:
        events[e["ph"]].append(e)
    work = [e for e in events["X"] if e["args"]["kind"] == "Kernel"]
    assert [(base + round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in work] == [
        (a["startNs"], a["endNs"] - a["startNs"]) for a in WANT if a["kind"] == "Kernel"]
    assert {e["name"] for e in work} <= {"MatMul", "Softmax, \"große\"", SHOWN, MANGLED}
    # every kernel has one arrow, from its launch
    starts = {e["id"]: e for e in events["s"]}
    assert len(starts) == len(events["f"]) == len(work)
    calls = {e["ts"]: e for e in events["X"] if e["name"] == "launch"}
    for end in events["f"]:
        begin = starts[end["id"]]
        call = calls[begin["ts"]]
        assert (begin["pid"], begin["tid"]) == (call["pid"], call["tid"])
        (kernel,) = [e for e in work if e["ts"] == end["ts"]]
        assert kernel["args"]["correlation"] == call["args"]["correlation"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events["M"]
             if e["name"] == "thread_name"}
    assert names[work[0]["pid"], work[0]["tid"]] == "stream 2"


def test_chrome_of_several_ranks(files):
    """Each process has its own rank, devices and arrows, though all of them use the same numbers."""
    ranks = [10, 0, 2]
    paths = [files.jsonl(rank, n=60) for rank in ranks]
    no_stream = dict(kind="Kernel", name="late", startNs=T0, endNs=T0 + 5, deviceId=0, streamId=2**32 - 1,
                     type="KERNEL_AICORE", correlationId=7000)
    text = paths[1].read_text().replace('"deviceId":0', '"deviceId":2')
    paths[1].write_text(line(**no_stream).replace('"deviceId":0', '"deviceId":2') + text)
    events = json.loads(files.export("chrome", *paths).read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(names.values()) == [
        "device 10, rank 10", "device 2, rank 0", "device 2, rank 2",
        "process 100, rank 0", "process 102, rank 2", "process 110, rank 10"]
    order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    assert [names[pid] for pid in sorted(order, key=order.get)] == [
        "process 100, rank 0", "device 2, rank 0", "process 102, rank 2", "device 2, rank 2",
        "process 110, rank 10", "device 10, rank 10"]
    rank = {pid: name.rsplit(" ", 1)[1] for pid, name in names.items()}
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = [e for e in events if e["ph"] == "f"]
    assert len(ends) == 3 * 60
    assert all(rank[starts[e["id"]]["pid"]] == rank[e["pid"]] for e in ends)
    threads = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert "no stream" in threads and not any("4294967295" in t for t in threads)


def test_chrome_of_a_worker(files):
    """A process that a rank has started has its variables; it is not called like the rank."""
    rank = files.jsonl(2, n=60)
    later = "".join(rank.read_text().splitlines(True)[4:])
    worker = rank.with_name("msmonitor_177_20261115220000009_2.jsonl")
    worker.write_text(later.replace('"processId":102', '"processId":177'))
    events = json.loads(files.export("chrome", worker, rank).read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    assert [names[pid] for pid in sorted(order, key=order.get)] == [
        "process 102, rank 2", "device 2, rank 2",
        "process 177, beside rank 2", "device 2, process 177 beside rank 2"]


def test_show_counts_right(files):
    said = files.show("--top=100", files.jsonl())
    totals = collections.defaultdict(list)
    for k in WANT:
        if k["kind"] == "Kernel":
            totals[k["name"]].append(k["endNs"] - k["startNs"])
    work = sum(map(sum, totals.values())) + sum(
        a["endNs"] - a["startNs"] for a in WANT if a["kind"] == "Communication")
    assert {k["name"] for k in said["kernels"]} == set(totals)
    for k in said["kernels"]:
        times = sorted(totals[k["name"]])
        assert (k["calls"], k["total_ns"], k["max_ns"]) == (len(times), sum(times), times[-1])
        assert k["share"] == pytest.approx(sum(times) / work)
        exact = times[-(-len(times) * 99 // 100) - 1]
        assert k["p99_ns"] == pytest.approx(exact, rel=0.02)
    assert [k["total_ns"] for k in said["kernels"]] == sorted(
        (k["total_ns"] for k in said["kernels"]), reverse=True)
    # kernels do not overlap: busy is their sum and what collectives add
    (device,) = said["processes"][0]["devices"]
    assert device["compute_ns"] == sum(map(sum, totals.values()))
    first = min(a["startNs"] for a in WANT)
    last = max(a["endNs"] for a in WANT)
    parts = ("compute_ns", "communication_ns", "copy_ns", "idle_ns")
    assert sum(device[p] for p in parts) == last - first
    assert device["communication_ns"] + device["hidden_communication_ns"] == sum(
        a["endNs"] - a["startNs"] for a in WANT if a["kind"] == "Communication")


def hccl_of(lines):
    """The same collectives as calls of HCCL."""
    for a in lines:
        if a["kind"] == "Communication":
            yield dict(kind="Hccl", name="HcclAllReduce", bytesPerSecond=1, **{
                k: a[k] for k in ("commName", "deviceId", "startNs", "endNs", "streamId")})


def test_collectives_that_are_told_twice_count_once(files):
    path = files.jsonl()
    once = files.show(path)
    path.write_text("".join(line(**a) for a in hccl_of(WANT)) + path.read_text())
    twice = files.show(path)
    for key in ("kernels", "communication", "busy_share"):
        assert once[key] == twice[key], key
    (again,) = twice["hccl"]
    assert (again["name"], again["calls"], again["share"]) == ("HcclAllReduce", 8, 1.0)
    assert once["hccl"] == [] and twice["kinds"]["Hccl"] == 8
    assert "as Hccl reports them" in files.good("show", path)
    # where nothing else tells of them they count
    path.write_text("".join(line(**a) for a in WANT if a["kind"] != "Communication")
                    + "".join(line(**a) for a in hccl_of(WANT)))
    alone = files.show(path)
    assert [c["kind"] for c in alone["communication"]] == ["Hccl"] and not alone["hccl"]
    assert alone["communication"][0]["share"] == once["communication"][0]["share"]


def test_files_that_rotation_removed_are_told(files):
    path = files.jsonl(end='{"kind":"loss","lost":0,"rotatedFiles":7}\n')
    text = files.good("show", path)
    assert "7 older files were removed to make room" in text and "nothing was lost" not in text
    (process,) = files.show(path)["processes"]
    assert process["rotated_files"] == 7 and process["lost"] == 0


def test_a_timeline_is_no_file_of_activities(files):
    trace = files.export("chrome", files.jsonl(n=3))
    r = files.sonde("show", trace)
    assert r.returncode == 1
    assert f"'{trace}' is a timeline" in r.stderr and "perfetto" in r.stderr


def test_show_in_words(files):
    for rank in range(2):
        files.jsonl(rank)
    text = files.good("show", files.tmp / "in")
    first = text.split("\n\n")[0]
    assert re.search(r"\d activities of 2 processes in .* ms, from 20\d\d-", first)
    assert re.search(r"Devices were busy \d+\.\d % of the time", first)
    assert "There is nothing here of copies: what was not collected counts as idle." in first
    assert "Most device time: " in first
    assert "nothing was lost" in first
    assert SHOWN in text or MANGLED in text
    assert "hcom_allReduce_ in group_name_0" in text
    assert "and 2 more" in files.good("show", "--top=1", files.tmp / "in")


def test_show_tells_loss_and_a_torn_end(files):
    path = files.jsonl(end='{"kind":"loss","lost":1234}\n{"correlationId":1,"dev')
    text = files.good("show", path)
    assert "1,234 activities were lost" in text
    assert "ends inside of a line" in text
    assert files.show(path)["lost"] == 1234


def test_a_name_with_no_number(files):
    """Of a DB that somebody has damaged."""
    db = files.export("db", files.jsonl())
    with sqlite3.connect(db) as data:
        data.execute("UPDATE COMPUTE_TASK_INFO SET name=-1, globalTaskId=globalTaskId+5")
    r = files.sonde("show", db)
    assert r.returncode in (0, 1) and "bug at" not in r.stderr, r.stderr


def test_show_says_that_a_file_was_not_closed(files):
    path = files.jsonl()
    db = files.export("db", path)
    for whole in (path, db):
        assert files.show(whole)["processes"][0]["closed"] is True
        assert "nothing was lost" in files.good("show", whole)
    with sqlite3.connect(db) as data:
        data.execute("UPDATE ACTIVITY_LOSS SET closed=0")
    path.write_text("".join(line(**a) for a in WANT))
    for killed in (path, db):
        assert files.show(killed)["processes"][0]["closed"] is False
        text = files.good("show", killed)
        assert "was not closed: its writer was killed, or is still writing" in text
        assert "nothing was lost" not in text
    # of files that follow each other only the last has an end
    last = path.with_name("msmonitor_100_20261115230000000_0.jsonl")
    last.write_text(line(device=[0], kind="rank_device_map", rank=0))
    assert "nothing was lost" in files.good("show", path.parent)
    with sqlite3.connect(db) as data:  # before there was such a column
        data.execute("DROP TABLE ACTIVITY_LOSS")
        data.execute("CREATE TABLE ACTIVITY_LOSS(lost INTEGER)")
        data.execute("INSERT INTO ACTIVITY_LOSS VALUES(3)")
    said = files.show(db)
    assert said["lost"] == 3 and said["processes"][0]["closed"] is None


def test_show_looks_into_traces(files):
    below = files.tmp / "trace" / "node0_100_20261115220000000_sonde"
    below.mkdir(parents=True)
    files.jsonl().rename(below / "msmonitor_100_20261115220000000_0.jsonl")
    assert files.show(files.tmp / "trace")["activities"] == len(WANT)
    (files.tmp / "empty").mkdir()
    r = files.sonde("show", files.tmp / "empty")
    assert r.returncode == 1 and "sonde activity summary" in r.stderr


def test_p99_is_no_more_than_the_longest(files):
    path = files.tmp / "x.jsonl"
    path.write_text("".join(
        line(kind="Kernel", name="k", startNs=T0 + i * 100000, endNs=T0 + i * 100000 + took,
             deviceId=0, streamId=2, type="T", correlationId=i)
        for i, took in enumerate([10500] * 200)))
    (kernel,) = files.show(path)["kernels"]
    assert kernel["p99_ns"] <= kernel["max_ns"] == 10500


def test_export_to_the_standard_output(files, tmp_path):
    path = files.jsonl()
    files.env["TMPDIR"] = str(tmp_path)
    for form in ("chrome", "csv", "jsonl"):
        r = files.sonde("export", f"--format={form}", "-o", "-", path, cwd=tmp_path)
        assert (r.returncode, r.stderr) == (0, "")
        assert r.stdout == files.export(form, path).read_text()
    for form in ("xlsx", "db"):
        r = files.sonde("export", f"--format={form}", "-o", "-", path, cwd=tmp_path)
        assert r.returncode == 1 and not r.stdout and "is no text" in r.stderr
    assert not (tmp_path / "-").exists()
    assert not list(tmp_path.glob("sonde-export-*"))


def test_a_db_of_the_tool_that_was_killed(files):
    """Data tables only, as msmonitor leaves them: no STRING_IDS."""
    path = files.tmp / "msmonitor_77_20261115220000000_-1.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE TASK(startNs INTEGER,endNs INTEGER,deviceId INTEGER,connectionId "
               "INTEGER,globalTaskId INTEGER,globalPid INTEGER,taskType INTEGER,contextId INTEGER,"
               "streamId INTEGER,taskId INTEGER,modelId INTEGER)")
    db.execute("CREATE TABLE COMPUTE_TASK_INFO(name INTEGER,globalTaskId INTEGER)")
    for i in range(10):
        db.execute("INSERT INTO TASK VALUES(?,?,0,?,?,77,1,4294967295,2,4294967295,4294967295)",
                   (T0 + i * 100, T0 + i * 100 + 50, i, i))
        db.execute("INSERT INTO COMPUTE_TASK_INFO VALUES(?,?)", (i % 2 + 5, i))
    db.commit()
    said = files.show(path)
    assert [(k["name"], k["calls"]) for k in said["kernels"]] == [("#5", 5), ("#6", 5)]
    assert said["processes"][0]["nameless"] and said["processes"][0]["pid"] == 77
    assert "names are shown as numbers" in files.good("show", path)


def test_an_empty_file_is_no_error(files):
    path = files.tmp / "x.jsonl"
    path.write_text("")
    assert "There are no activities." in files.good("show", path)
    for form in ("chrome", "csv", "xlsx"):
        files.good("export", f"--format={form}", "-o", files.tmp / f"empty.{form}", path)
    assert json.loads((files.tmp / "empty.chrome").read_text())["traceEvents"] == []
    assert (files.tmp / "empty.csv").read_text().count("\n") == 1
    assert zipfile.is_zipfile(files.tmp / "empty.xlsx")


def test_mistakes_are_told(files):
    path = files.jsonl(n=3)
    (files.tmp / "none").mkdir()
    for words, status, says in (
        (("show",), 2, "sonde activity show"),
        (("show", files.tmp / "missing"), 1, "No such file"),
        (("show", files.tmp / "none"), 1, "no .db or .jsonl file"),
        (("show", files.build / "bin/sonde"), 1, "sonde"),
        (("export", path), 2, "--output"),
        (("export", "--format=pdf", "-o", "x", path), 2, "chrome, xlsx, csv, jsonl or db"),
        (("export", "--format=csv", "-o", files.tmp / "no/such/dir/x.csv", path), 1, "no/such/dir"),
        (("export", "--format=db", "-o", path / "x", path), 1, "Not a directory"),
        (("nonsense",), 2, "nonsense"),
    ):
        r = files.sonde(*words)
        assert r.returncode == status, (words, r.returncode, r.stderr)
        assert says in r.stderr, (words, r.stderr)
        assert r.stdout == ""
    bad = files.tmp / "bad.jsonl"
    bad.write_text(path.read_text() + '{"kind":"Kernel"}\n' + path.read_text())
    r = files.sonde("show", bad)
    assert r.returncode == 1 and re.search(r"line 1\d: \"correlationId\" is missing", r.stderr)


@pytest.mark.parametrize(
    "name, data, why",
    [
        ("bad.db", random.Random(7).randbytes(5000), "it begins like neither of them"),
        ("bad.jsonl", random.Random(8).randbytes(5000), "it begins like neither of them"),
        ("notes.txt", b"a line\nanother\n", "it begins like neither of them"),
        ("config.json", b'{\n  "kind": 1\n}\n', 'its first line is no JSON object with a "kind"'),
        ("empty.db", b"", "it is empty"),
        ("other.db", None, "it is a DB of something else, with none of their tables"),
    ],
)
def test_a_file_of_another_kind_is_named_as_such(files, name, data, why):
    path = files.tmp / name
    if data is None:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE people(name TEXT)")
    else:
        path.write_bytes(data)
    out = files.tmp / "out.json"
    for words in ("show", path), ("export", "-o", out, path):
        r = files.sonde(*words)
        assert (r.returncode, r.stdout) == (1, "")
        says = f"'{path}' is neither a DB nor Jsonl of activities: {why}; npu-monitor and nputrace "
        assert says + "write such files, *.db and *.jsonl, with --log-file" in r.stderr, r.stderr
    assert not out.exists()


def test_a_full_disk_fails_and_says_so(files):
    needs("dev-full")
    r = files.sonde("export", "--format=csv", "-o", "/dev/full", files.jsonl())
    assert r.returncode == 1 and "No space left" in r.stderr
    assert pathlib.Path("/dev/full").exists()
