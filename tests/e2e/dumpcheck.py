# SPDX-License-Identifier: MulanPSL-2.0
"""What must hold for every dump, whatever was recorded.

check_output() reads all dump files below an output directory and checks each by itself and all of
a process together; check_replay() exports the recording again and compares. Both raise
AssertionError with the offending row. Nothing here uses the code under test.
"""

import collections
import csv
import functools
import json
import re
import sqlite3
import subprocess

HEADER = (
    "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,"
    "Call Stack(Python),Call Stack(C)"
)
SCHEMA = (
    'CREATE TABLE memscope_dump("ID" INTEGER,"Event" TEXT,"Event Type" TEXT,"Name" TEXT,'
    '"Timestamp(ns)" INTEGER,"Process Id" INTEGER,"Thread Id" INTEGER,"Device Id" TEXT,'
    '"Ptr" TEXT,"Attr" TEXT,"Call Stack(Python)" TEXT,"Call Stack(C)" TEXT)'
)
COLUMNS = (int, str, str, str, int, int, int, str, str, str, str, str)
POOLS = {"HAL", "HOST", "PYTHON", "PTA", "PTA_WORKSPACE", "MindSpore", "MINDSPORE", "ATB"}
POOLS |= {"TORCH", "CUDA"}
TYPES = {
    "MALLOC": POOLS,
    "FREE": POOLS,
    "ACCESS": {"READ", "WRITE", "UNKNOWN"},
    "OP_LAUNCH": {"ATEN_START", "ATEN_END", "ATB_START", "ATB_END"},
    "KERNEL_LAUNCH": {
        "KERNEL_LAUNCH",
        "KERNEL_EXECUTE_START",
        "KERNEL_EXECUTE_END",
        "KERNEL_START",
        "KERNEL_END",
    },
    "MSTX": {"Mark", "Range_start", "Range_end"},
    "SYSTEM": {"ACL_INIT", "ACL_FINI", "START_TRACE", "STOP_TRACE", "STEP", "EXIT"},
    "SNAPSHOT": {"SNAPSHOT"},
    "OOM_DETAIL": {"OOM_TRIGGER", "OOM_RECENT_ALLOC", "OOM_TOP_ALLOC"},
}
# Attribute keys in their documented order. FREE has an owner only if it was told after the MALLOC.
BLOCK_KEYS = (
    "allocation_id addr size pinned used total process_used device_used job_used shadow owner inefficient "
    "inefficient_type page_type alloc_type"
).split()
ATTR_KEYS = {
    "MALLOC": BLOCK_KEYS,
    "FREE": BLOCK_KEYS[:11] + ["alloc_type"],
    "ACCESS": "allocation_id addr size type dtype format shape".split(),
    "OP_LAUNCH": "path workspace_ptr workspace_size".split(),
    "KERNEL_LAUNCH": "streamId taskId path".split(),
    "MSTX": [],
    "SYSTEM": "free total".split(),
    "OOM_DETAIL": "func req_size flag pool ptr size timestamp".split(),
}
ATTR_KEY = re.compile(r"(?:^|,)([A-Za-z_][A-Za-z0-9_ ]*):")
PTR = re.compile(r"0x[0-9a-f]{16}")
DUMP = re.compile(
    r"msmemscope_(\d+)_(\d{14})(?:_\d+)?_ascend/device_(\d+|cpu)/dump/memscope_dump_(\d{14})\.(csv|db)"
)
# Times that are not those of writing: a launch is stamped when it was entered and comes after what
# happened inside; executions are stamped by the device.
OUT_OF_ORDER = ("KERNEL_LAUNCH",)

Row = collections.namedtuple(
    "Row", "id event type name time pid tid device ptr attr py_stack c_stack"
)


def parse_attr(text):
    """{key: value} of a CSV cell by the documented grammar: a key stands behind a comma."""
    if not text:
        return {}
    assert text[0] == "{" and text[-1] == "}", text
    parts = ATTR_KEY.split(text[1:-1])
    assert parts[0] == "", text
    attr = dict(zip(parts[1::2], parts[2::2]))
    assert len(attr) == len(parts) // 2, text
    return attr


def read_csv(path):
    return list(parse_csv(path.read_bytes()))


@functools.lru_cache(maxsize=8)
def parse_csv(data):
    """Kept for a while: an export is most often the same as what was written live."""
    assert data.endswith(b"\n") and b"\r" not in data and b"\0" not in data, data[-100:]
    lines = csv.reader(data.decode("utf-8").splitlines(keepends=True), strict=True)
    assert ",".join(next(lines)) == HEADER
    assert data.startswith(HEADER.encode() + b"\n")
    rows = []
    for cells in lines:
        assert len(cells) == 12, cells
        cells[0], cells[4], cells[9] = int(cells[0]), int(cells[4]), parse_attr(cells[9])
        rows.append(Row._make(cells))
    return rows


def read_db(path):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        tables = db.execute("SELECT name, sql FROM sqlite_master").fetchall()
        calls = [t for t in tables if t[0].startswith("python_trace_")]
        assert [t for t in tables if t not in calls] == [("memscope_dump", SCHEMA)], tables
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        table = db.execute("SELECT * FROM memscope_dump ORDER BY rowid").fetchall()
        # all at once: a call for each row takes several times as long
        attrs = json.loads("[%s]" % ",".join([cells[9] for cells in table]))
        assert len(attrs) == len(table)
        rows = []
        for cells, attr in zip(table, attrs):
            assert tuple(map(type, cells)) == COLUMNS, cells
            assert set(map(type, attr.values())) <= {str}, cells
            i, event, kind, name, time, pid, tid, device, ptr, _, py_stack, c_stack = cells
            rows.append(
                Row(i, event, kind, name, time, str(pid), str(tid), device, ptr, attr, py_stack, c_stack)
            )
        return rows
    finally:
        db.close()


def plain_name(row):
    """The name without the quotes that the DB form keeps around the names of marks."""
    return row.name[1:-1] if row.event == "MSTX" and row.name[:1] == '"' else row.name


def check_row(row, device):
    assert row.type in TYPES[row.event], row
    assert row.device in (device, "N/A"), row
    assert row.pid.isdigit() and row.tid.isdigit(), row
    if row.event in ("MALLOC", "FREE", "ACCESS"):
        assert PTR.fullmatch(row.ptr), row
    else:
        assert row.ptr == "N/A", row
    if row.event == "SNAPSHOT":
        return
    keys = list(row.attr)
    if row.event == "MALLOC" and keys[-1:] == ["room"]:
        assert row.attr["room"].isspace() and keys.pop(), row
    assert is_ordered(row.event, tuple(keys)), row
    if row.event in ("MALLOC", "FREE"):
        check_block(row)
    if row.event == "ACCESS":
        assert row.attr["addr"] == row.ptr and int(row.attr["size"]) >= 0, row
    if row.event == "KERNEL_LAUNCH" and "path" not in row.attr:
        assert keys == ["streamId", "taskId"], row
        assert row.name != "N/A", row


@functools.lru_cache(maxsize=None)
def is_ordered(event, keys):
    """Whether these are keys of the event, in their documented order."""
    order = ATTR_KEYS[event]
    return set(keys) <= set(order) and list(keys) == sorted(keys, key=order.index)


def check_block(row):
    assert row.name == "N/A", row
    assert row.attr["addr"] == row.ptr, row
    assert int(row.attr["allocation_id"]) > 0 and int(row.attr["size"]) >= 0, row
    assert row.attr.get("shadow", "true") == "true" and row.attr.get("pinned", "true") == "true"
    hal = row.type == "HAL" and row.event == "MALLOC"
    assert ("page_type" in row.attr) == hal and (not hal or "alloc_type" in row.attr), row
    assert row.attr.get("page_type", "normal") in ("normal", "huge", "giant"), row
    kinds = ("mmap", "shared", "file") if row.type == "HOST" else ("alloc", "create") if hal else ()
    if row.type == "CUDA":
        kinds = ("alloc", "create", "host", "async", "managed", "array")
    assert row.attr.get("alloc_type") in (None, *kinds), row
    assert row.type == "CUDA" or (row.type in ("HOST", "PYTHON")) == (row.device == "cpu"), row


def check_pairs(rows):
    """Every allocation id: one MALLOC, then one FREE of the same block."""
    live, seen = {}, set()
    for row in rows:
        if row.event not in ("MALLOC", "FREE"):
            continue
        key = row.attr["allocation_id"]
        if row.event == "MALLOC":
            assert key not in seen, row
            seen.add(key)
            live[key] = row
        else:
            assert key in live, row
            first = live.pop(key)
            assert (first.type, first.device, first.ptr) == (row.type, row.device, row.ptr), row
            assert first.attr["size"] == row.attr["size"], row
            assert first.time <= row.time, (first, row)
    assert not live, live


def check_sums(rows):
    """`used` (host memory: `total`) is the running sum of the sizes, pool by pool; files apart."""
    sums = collections.Counter()
    mixed = {r.attr.get("owner", "")[:13] for r in rows if r.event == "MALLOC"} >= {"PTA_WORKSPACE"}
    for row in rows:
        if row.event not in ("MALLOC", "FREE"):
            continue
        pinned = "pinned" in row.attr
        key = row.device, row.type, pinned, row.attr.get("alloc_type") == "file"
        size = int(row.attr["size"])
        sums[key] += size if row.event == "MALLOC" else -size
        assert sums[key] >= 0 or "shadow" in row.attr, row
        said = row.attr.get("total" if row.type == "HOST" and not pinned else "used")
        if said is not None and not mixed:
            assert int(said) == sums[key], (row, sums[key])
        if row.type not in ("HAL", "HOST", "CUDA") and "shadow" not in row.attr and said is not None:
            assert "total" in row.attr, row


def check_order(rows):
    before = None
    for row in rows:
        if row.event not in OUT_OF_ORDER:
            assert before is None or row.time >= before.time, (before, row, row.time - before.time)
            before = row


def check_access(rows):
    """An access with an allocation id lies in that block."""
    live = {}
    for row in rows:
        key = row.attr.get("allocation_id")
        if row.event == "MALLOC":
            live[key] = row
        elif row.event == "FREE":
            live.pop(key)
        elif row.event == "ACCESS" and key:
            start = int(live[key].ptr, 16)
            assert start <= int(row.ptr, 16) < start + int(live[key].attr["size"]), row


class Process:
    """The dumps of one process image: .pid, .dir, .files {device: path}, .rows in order of ID."""

    def __init__(self, directory, form="*"):
        self.dir = directory
        self.files = {}
        self.by_device = {}
        rows = {}
        stamps = set()
        for path in sorted(directory.glob(f"device_*/dump/*.{form}")):
            if path.suffix in (".db-wal", ".db-shm", ".db-journal"):
                continue
            if path.name.startswith("python_trace_"):
                continue
            m = DUMP.fullmatch(str(path.relative_to(directory.parent)))
            assert m, path
            self.pid, device = int(m[1]), m[3]
            stamps.add((m[2], m[4]))
            assert path.stat().st_mode & 0o777 == 0o600, path
            mine = (read_csv if m[5] == "csv" else read_db)(path)
            assert mine, f"{path} has no rows"
            self.files[device] = path
            self.by_device[device] = mine
            self.check_file(mine, device)
            for row in mine:
                assert rows.setdefault(row.id, row) == row, row
        # None: nothing but calls of Python functions was recorded.
        assert not stamps or len(stamps) == 1 and len(set(*stamps)) == 1, stamps
        json.loads((directory / "config.json").read_text())
        self.rows = [rows[k] for k in sorted(rows)]
        check_pairs(self.rows)
        check_sums(self.rows)
        check_order(self.rows)
        check_access(self.rows)

    def check_file(self, rows, device):
        ids = [r.id for r in rows]
        assert len(set(ids)) == len(ids), "an ID stands twice in one file"
        assert ids == sorted(ids)
        for row in rows:
            check_row(row, device)
            assert int(row.pid) == self.pid, row


def check_output(out, form="*"):
    """All processes below an output directory, each checked; of one form, where it holds both."""
    found = [Process(d, form) for d in sorted(out.glob("msmemscope_*_ascend"))]
    return [p for p in found if p.files]


def tree(out):
    """The dumps. Calls of Python are a file of their own or a table in these: see python_traces."""
    return {
        str(p.relative_to(out)): p
        for p in sorted(out.glob("msmemscope_*_ascend/device_*/dump/memscope_dump_*"))
        if p.suffix in (".csv", ".db")
    }


def export(build, recording, to, form, *more):
    r = subprocess.run(
        [build / "bin" / "sonde", "mem", "export", f"--format={form}", "-o", to, *more, recording],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (r.returncode, r.stdout, r.stderr) == (0, "", ""), r
    return to


def comparable(row):
    """A row as CSV and DB have it in common: the DB form keeps the quotes of names and stacks."""
    if row.event != "MSTX" and '"' not in (row.py_stack[:1], row.c_stack[:1]):
        return row
    stacks = [s[1:-1] if s[:1] == '"' else s for s in (row.py_stack, row.c_stack)]
    return row._replace(name=plain_name(row), py_stack=stacks[0], c_stack=stacks[1])


def check_replay(build, recording, live, scratch):
    """The export of a recording is what was written live, and csv and db say the same."""
    again = {f: export(build, recording, scratch / f"again_{f}", f) for f in ("csv", "db")}
    files = {f: tree(d) for f, d in again.items()}
    assert sorted(p[:-3] for p in files["csv"]) == sorted(p[:-2] for p in files["db"])
    for name, path in files["csv"].items():
        a = [comparable(r) for r in read_csv(path)]
        b = [comparable(r) for r in read_db(files["db"][name[:-3] + "db"])]
        assert a == b, name
    for name, path in tree(live).items():
        form = path.suffix[1:]
        assert name in files[form], name
        if form == "csv":
            assert path.read_bytes() == files["csv"][name].read_bytes(), name
        else:
            assert read_db(path) == read_db(files["db"][name]), name
    for form in ("csv", "db"):
        stems = {n.rsplit(".", 1)[0] for n in files[form]}
        assert stems == {n.rsplit(".", 1)[0] for n in tree(live)}
