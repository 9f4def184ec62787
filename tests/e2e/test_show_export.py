# SPDX-License-Identifier: MulanPSL-2.0
"""sonde mem show and export: the same numbers as the rows, from every form."""

import collections
import json
import sqlite3
import subprocess

import pytest

import dumpcheck


def show(record, path, *words):
    r = record.sonde("mem", "show", "--json", *words, path)
    assert r.returncode == 0, r.stderr
    assert r.stderr == b""
    return json.loads(r.stdout)


def pools(answer):
    """{(pid, device, pool): what is said about it}"""
    return {
        (p["pid"], pool["device"], pool["pool"]): pool
        for p in answer["processes"]
        for pool in p["pools"]
    }


def counted(processes):
    """The same from the rows, without the program under test."""
    found = collections.defaultdict(lambda: collections.Counter())
    for p in processes:
        live, ended = {}, False
        for r in p.rows:
            ended = ended or r.type == "EXIT"  # what is freed now was there at the end
            if r.event not in ("MALLOC", "FREE"):
                continue
            if r.attr.get("alloc_type") == "file":  # in no pool
                continue
            c = found[p.pid, r.device, r.type]
            size = int(r.attr["size"])
            if r.event == "MALLOC":
                c["mallocs"] += 1
                if ended and r.device == "cpu":
                    continue
                c["now"] += size
                live[r.attr["allocation_id"]] = size
                if c["now"] > c["peak_bytes"]:
                    c["peak_bytes"], c["peak_time_ns"] = c["now"], r.time
            else:
                known = live.pop(r.attr["allocation_id"], None) is not None
                c["synthetic_frees" if "shadow" in r.attr else "frees"] += 1
                if known and ("shadow" in r.attr or ended and r.device == "cpu"):
                    c["alive"] += 1
                    c["alive_bytes"] += size
                elif known:
                    c["now"] -= size
    return found


def check(answer, processes):
    said = pools(answer)
    want = counted(processes)
    assert said.keys() == want.keys()
    for key, c in want.items():
        pool = said[key]
        for name in ("mallocs", "frees", "synthetic_frees", "peak_bytes"):
            assert pool[name] == c[name], (key, name)
        assert pool["peak_time_ns"] == c["peak_time_ns"], key
        assert pool["alive_at_end"]["blocks"] == c["alive"], key
        assert pool["alive_at_end"]["bytes"] == c["alive_bytes"], key


@pytest.mark.parametrize("form", ["csv", "db"])
@pytest.mark.parametrize(
    "job",
    [
        ["--steps", 5, "--fault", "leak"],
        ["--steps", 3, "--devices", 2, "--procs", 2, "--threads", 1, "--fault", "leak:12345"],
        ["--steps", 3, "--pool", "atb", "--fault", "crash:kill"],
    ],
    ids=["leak", "many", "killed"],
)
def test_show_agrees_with_the_rows(record, job, form):
    got = record("simtrain", *job, opts=[f"--format={form}", "--device=npu,cpu"])
    answer = show(record, got.dir)
    check(answer, got.processes)
    assert answer["lost"] == {"events": 0, "stacks": 0, "damaged_bytes": 0, "exact": True}
    assert answer["rows"] == sum(len(p.rows) for p in got.processes)
    assert show(record, got.out) == answer, "the output directory stands for its newest recording"
    assert show(record, got.dir / "events.sonde") == answer
    for p in got.processes:
        for device, path in p.files.items():
            part = collections.namedtuple("P", "pid rows")(p.pid, p.by_device[device])
            check(show(record, path), [part])
    text = record.sonde("mem", "show", got.dir)
    assert text.returncode == 0 and text.stderr == b""
    for p in got.processes:
        assert str(p.pid).encode() in text.stdout


def test_show_over_time(record):
    """The most that was held in each part of the time, as the rows have it; a line of it in the text."""
    got = record("simtrain", "--steps", 30, "--fault", "leak")
    (device,) = show(record, got.dir)["devices"]
    said = device["over_time"]
    bins, first, width = said["bytes"], said["first_time_ns"], said["bin_ns"]
    expected, sizes, held = [0] * len(bins), {}, 0
    before = 0  # the bin of the row before
    for r in sorted((r for r in got.process.rows if r.type == "HAL"), key=lambda r: r.time):
        if r.event not in ("MALLOC", "FREE"):
            continue
        at = (r.time - first) // width
        for k in range(before + 1, at + 1):
            expected[k] = held
        before, key = at, r.attr["allocation_id"]
        held += int(r.attr["size"]) if r.event == "MALLOC" else -sizes[key]
        sizes[key] = int(r.attr["size"])
        expected[at] = max(expected[at], held)
    assert bins == expected and max(bins) == device["peak_bytes"] and 120 < len(bins) <= 240
    for locale, ink in (("C.UTF-8", "▁▂▃▄▅▆▇█"), ("C", "._-=+*#@")):
        text = subprocess.check_output([record.build / "bin/sonde", "mem", "show", got.dir],
                                       env=record.env() | {"LC_ALL": locale}).decode()  # fmt: skip
        (line,) = [ln for ln in text.splitlines() if ln.startswith("Device 0  ")]
        picture = line[len("Device 0  ") :][:48]
        assert picture.strip(" " + ink) == "" and picture[-1] == ink[-1], line
        assert line[58:].startswith("  up to ")


def test_show_says_where(record):
    opts = ["--call-stack=c:20"]
    got = record("simtrain", "--steps", 6, "--fault", "leak:4096", opts=opts)
    for path in (got.dir, got.process.files["0"]):
        (pool,) = [p for k, p in pools(show(record, path)).items() if k[2] == "PTA"]
        (place,) = pool["alive_at_end"]["places"]
        assert (place["blocks"], place["bytes"]) == (4, 4 * 4096)
        assert any("leak_one_buffer" in line for line in place["c_stack"])
        where = place["where"].split()[0]
        assert any(where in line for line in place["c_stack"])
        assert where.encode() in record.sonde("mem", "show", path).stdout


def test_export_into_the_recording(record):
    """Without -o, and twice: the second run replaces the files of the first."""
    got = record("simtrain", "--steps", 2)
    for _ in range(2):
        for form in ("csv", "db"):
            assert record.sonde("mem", "export", f"--format={form}", got.dir).returncode == 0
    (again,) = dumpcheck.check_output(got.dir / "export", "csv")
    assert again.rows == got.rows


def test_export_of_a_dump_is_refused(record):
    got = record("simtrain", "--steps", 2)
    r = record.sonde("mem", "export", "-o", record.tmp / "x", got.process.files["0"])
    assert r.returncode != 0 and r.stderr and b"Traceback" not in r.stderr
    assert not (record.tmp / "x").exists()


OLD_HEADER = "ID,Event,Event Type,Name,Timestamp(us),Process Id,Thread Id,Device Id,Ptr,Attr\n"


def test_dumps_of_2025(record):
    """No allocation_id, hexadecimal addresses, `host`, negative sizes of frees, microseconds."""
    path = record.tmp / "memscope_dump_1.csv"
    path.write_text(
        OLD_HEADER
        + '1,MALLOC,PTA,N/A,1000000,7,7,0,0x12c0,"{addr:0x12c0,size:100,total:512,used:100}"\n'
        + '2,MALLOC,PTA,N/A,1000001,7,7,0,0x13c0,"{addr:0x13c0,size:30,total:512,used:130}"\n'
        + '3,FREE,PTA,N/A,1000003,7,7,0,0x12c0,"{addr:0x12c0,size:-100,total:512,used:30}"\n'
        + '4,MALLOC,HOST,N/A,1000004,7,7,host,0x55,"{addr:0x55,size:8}"\n'
        + '5,FREE,HOST,N/A,1000005,7,7,host,0x55,"{addr:0x55,size:-8}"\n'
    )
    r = record.sonde("mem", "show", path)
    text = " ".join(r.stdout.decode().split())
    assert "made 5 memory events in 5.0 us" in text, text
    assert "1 block (30 B) of PTA was still allocated" in text and "Everything" not in text
    a = json.loads(record.sonde("mem", "show", "--json", path).stdout)
    pools = {p["pool"]: p for p in a["processes"][0]["pools"]}
    assert pools["HOST"]["device"] == "cpu" and pools["HOST"]["alive_at_end"]["blocks"] == 0
    assert pools["PTA"]["peak_bytes"] == 130 and a["duration_ns"] == 5000
    # Neither an id nor an address: then nobody knows.
    path.write_text(OLD_HEADER + '1,MALLOC,PTA,N/A,1,7,7,0,N/A,"{size:100,total:512,used:100}"\n')
    text = " ".join(record.sonde("mem", "show", path).stdout.decode().split())
    assert "Everything" not in text and "1 allocation has neither an id nor an address" in text


OLD_ROWS = [
    (1, "MALLOC", 1000000, "0x12c0", "{addr:0x12c0,size:100,total:512,used:100}"),
    (3, "FREE", 1000003, "0x12c0", "{addr:0x12c0,size:-100,total:512,used:30}"),
    (2, "MALLOC", 1000001, "0x13c0", "{addr:0x13c0,size:30,total:512,used:130}"),
]


@pytest.mark.parametrize("table", ["leaks_dump", "memscope_dump"])
def test_databases_of_2025(record, table):
    """The table had another name, times were microseconds; rows are sorted by them."""
    folder = record.tmp / table
    folder.mkdir()
    db = sqlite3.connect(folder / f"{table}_1.db")
    columns = ",".join(f'"{c}"' for c in OLD_HEADER.strip().split(","))
    db.execute(f"CREATE TABLE {table}({columns})")
    for id, event, us, ptr, attr in OLD_ROWS:
        if table == "memscope_dump":  # as JSON
            attr = "{" + ",".join('"%s":"%s"' % tuple(p.split(":")) for p in attr[1:-1].split(",")) + "}"
        row = (id, event, "PTA", "N/A", us, 7, 7, "0", ptr, attr)
        db.execute(f"INSERT INTO {table} VALUES({','.join('?' * len(row))})", row)
    db.commit()
    db.close()
    for path in (folder, folder / f"{table}_1.db"):
        a = json.loads(record.sonde("mem", "show", "--json", path).stdout)
        assert a["rows"] == 3 and a["duration_ns"] == 3000, a
        (pool,) = a["processes"][0]["pools"]
        assert pool["peak_bytes"] == 130 and pool["alive_at_end"]["bytes"] == 30
    r = record.sonde("mem", "inefficient", folder)
    assert r.returncode == 0, r


def test_a_directory_that_cannot_be_read_is_not_called_empty(users):
    closed = users.alice.mkdir("closed", mode=0o711)
    for question in ("show", "leaks"):
        r = users.bob.run(users.build / "bin/sonde", "mem", question, closed)
        assert r.returncode == 1 and "cannot read the directory" in r.stderr, r
        assert "Permission denied" in r.stderr and "neither" not in r.stderr
