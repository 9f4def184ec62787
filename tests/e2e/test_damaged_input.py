# SPDX-License-Identifier: MulanPSL-2.0
"""Readers meet files that are missing, foreign, damaged or cut off: words, never a crash."""

import json
import os
import random
import re
import resource
import shutil

import pytest


def survived(r):
    assert r.returncode in (0, 1, 2), (r.returncode, r.stderr[-500:])
    assert r.returncode == 0 or r.stderr, "a failure without a word"
    assert b"Sanitizer" not in r.stderr and b"BUG" not in r.stderr


@pytest.mark.parametrize("command", ["show", "export", "recover"])
def test_what_is_no_recording(record, command):
    bad = {
        "empty": b"",
        "text": b"hello\n" * 100,
        "zeros": bytes(10000),
        "head": b"SONDEREC",
        "future": b"SONDEREC" + b"\xff" * 100,
        "database": b"SQLite format 3\0" + bytes(200),
        "header": b"ID,Event,Event Type\n1,2\n",
        "noise": random.Random(1).randbytes(5000),
    }
    for name, data in bad.items():
        for suffix in ("", ".csv", ".db"):
            path = record.tmp / (name + suffix)
            path.write_bytes(data)
            r = record.sonde("mem", command, path)
            survived(r)
            assert r.returncode != 0, (name, suffix, r.stdout)
            assert command != "show" or name != "empty" or b"nothing was written to it so far" in r.stderr
    empty = record.tmp / "dir"
    empty.mkdir()
    for path in (empty, record.tmp / "missing", "/dev/null", "/proc/self/mem", record.tmp):
        r = record.sonde("mem", command, path)
        survived(r)
        assert r.returncode != 0 and r.stderr, path


def cuts(size, step):
    return sorted({*range(0, min(size, 120), 13), *range(0, size, max(97, step)), size - 1})


@pytest.mark.parametrize("what", ["events.sonde", "csv", "db"])
def test_cut_off_anywhere(record, what):
    form = "db" if what == "db" else "csv"
    opts = [f"--format={form}", "--call-stack=c:4"]
    got = record("simtrain", "--steps", 2, "--layers", 1, opts=opts)
    whole = (got.dir / what if what == "events.sonde" else got.process.files["0"]).read_bytes()
    path = record.tmp / f"cut.{what}"
    # Every 97th byte of a short file; as many places in a long one.
    partial = 0
    for n in cuts(len(whole), len(whole) // 150):
        path.write_bytes(whole[:n])
        r = record.sonde("mem", "show", "--json", path)
        survived(r)
        if r.returncode == 0:
            answer = json.loads(r.stdout)
            partial += bool(answer["notes"])
    assert what == "db" or partial, "some of them give a partial answer and say so"


def test_a_cut_recording_is_exported_as_far_as_it_goes(record):
    got = record("simtrain", "--steps", 20, "--step-ms", 15)
    whole = (got.dir / "events.sonde").read_bytes()
    live = {r.id: r for r in got.rows}
    some = 0
    for n in (len(whole) // 2, len(whole) * 3 // 4, len(whole) - 1):
        path = record.tmp / "cut.sonde"
        path.write_bytes(whole[:n])
        to = record.tmp / f"to{n}"
        r = record.sonde("mem", "export", "-o", to, path)
        survived(r)
        if not to.exists():
            continue
        import dumpcheck

        for p in dumpcheck.check_output(to):
            some += 1
            for row in p.rows:
                if "shadow" not in row.attr:
                    assert live[row.id] == row
    assert some


FINDINGS = {
    "leaks": ["--fail-on=leak"],
    "gaps": ["--fail-on=uneven", "--spread=100"],
    "peak": ["--limit=1TiB", "--fail-on=limit"],
    "oom": ["--fail-on=oom"],
    "inefficient": ["--fail-on=waste"],
    "watch": ["--fail-on=corruption"],
}


def test_incomplete_is_said_first_and_is_never_good_news(record):
    """Also of a recording that ends before its first event, to every question."""
    got = record("simtrain", "--steps", 9)
    whole = (got.dir / "events.sonde").read_bytes()
    good = record.sonde("mem", "leaks", "--fail-on=leak", got.dir)
    assert good.returncode == 0 and b"No leaks" in good.stdout, good
    path = record.tmp / "cut.sonde"
    for size in (64, 1200, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert record.sonde("mem", "show", path).stdout.startswith(b"Incomplete: the file is cut")
        for question, options in FINDINGS.items():
            r = record.sonde("mem", question, *options, path)
            assert r.stdout.startswith(b"Incomplete: the file is cut off"), (question, size)
            assert r.returncode == 1 and b"--fail-on:" in r.stderr, (question, size, r)
    r = record.sonde("mem", "compare", "--fail-on=diff", "--level=site", path, path)
    assert r.returncode == 1 and b"incomplete" in r.stderr, r


def test_flipped_bytes(record):
    got = record("simtrain", "--steps", 2, "--layers", 1)
    for source in (got.dir / "events.sonde", got.process.files["0"]):
        whole = bytearray(source.read_bytes())
        rng = random.Random(7)
        path = record.tmp / ("flipped" + source.suffix)
        for _ in range(60):
            data = bytearray(whole)
            for _ in range(rng.choice((1, 1, 20))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            survived(record.sonde("mem", "show", path))


def test_a_recording_without_its_parts(record):
    got = record("simtrain", "--steps", 2)
    for gone in ("session", "config.json", "msmemscope.log"):
        copy = record.tmp / f"without_{gone}"
        shutil.copytree(got.dir, copy)
        os.unlink(copy / gone)
        r = record.sonde("mem", "show", "--json", copy)
        assert r.returncode == 0, (gone, r.stderr)
        assert json.loads(r.stdout)["rows"] == len(got.rows)
    copy = record.tmp / "without_events"
    shutil.copytree(got.dir, copy)
    os.unlink(copy / "events.sonde")
    r = record.sonde("mem", "show", copy)
    survived(r)
    assert r.returncode != 0


# --- dumps that other hands have touched ---

COLUMNS = [
    "ID",
    "Event",
    "Event Type",
    "Name",
    "Timestamp(ns)",
    "Process Id",
    "Thread Id",
    "Device Id",
    "Ptr",
    "Attr",
    "Call Stack(Python)",
    "Call Stack(C)",
]
HEADER = ",".join(COLUMNS) + "\n"
ANALYSES = ["show", "leaks", "inefficient", "owners", "peak"]


def row(number, event="MALLOC", kind="PTA", name="N/A", time=None, pid=5, attr="", stack=""):
    time = number * 1000 if time is None else time
    ptr = "0x%016x" % (number << 12) if event in ("MALLOC", "FREE", "ACCESS") else "N/A"
    return f"{number},{event},{kind},{name},{time},{pid},{pid},0,{ptr},{attr},,{stack}\n"


def block(number, size, event="MALLOC", of=None, **more):
    of = of or number
    attr = f'"{{allocation_id:{of},addr:0x{of << 12:016x},size:{size},used:{size},total:{size}}}"'
    return row(number, event, attr=attr, **more).replace(f"{number << 12:016x}", f"{of << 12:016x}")


# Two blocks, of which the larger is freed.
ROWS = [
    row(1, "MSTX", "Range_start", '"step start"'),
    row(2, "OP_LAUNCH", "ATEN_START", "aten.add"),
    block(3, 4096),
    block(4, 1 << 20),
    row(5, "OP_LAUNCH", "ATEN_END", "aten.add"),
    block(6, 1 << 20, "FREE", of=4),
    row(7, "MSTX", "Range_end", '"Range end from id 1"'),
]


@pytest.fixture(params=ANALYSES)
def ask(request, record):
    """Asks one analysis about the bytes of a dump: its result, and its answer if it gave one."""
    command = request.param

    def ask(data, *opts):
        path = record.tmp / "dump.csv"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        before = path.read_bytes()
        opts = [*opts, *(["--no-write"] if command == "inefficient" else [])]
        r = record.sonde("mem", command, "--json", *opts, path)
        survived(r)
        text = record.sonde("mem", command, *opts, path)
        survived(text)
        assert text.returncode == r.returncode
        assert path.read_bytes() == before and len(list(record.tmp.glob("dump.csv*"))) == 1
        return r, json.loads(r.stdout) if r.returncode == 0 else None, text.stdout.decode()

    return ask


def answer_of(data, ask):
    r, answer, _ = ask(data)
    assert r.returncode == 0, r.stderr
    answer.pop("notes", None)
    return answer


@pytest.mark.parametrize("gone", COLUMNS[:10])
def test_a_column_is_missing(ask, gone):
    at = COLUMNS.index(gone)
    lines = [HEADER, row(1, "SYSTEM", "ACL_INIT")]
    text = "".join(",".join(c for i, c in enumerate(line.split(",")) if i != at) for line in lines)
    r, _, _ = ask(text)
    assert r.returncode != 0
    assert f'no column "{gone}"'.encode() in r.stderr


def test_columns_that_may_be_missing(ask):
    whole = answer_of(HEADER + "".join(ROWS), ask)
    short = "".join(line.rsplit(",", 2)[0] + "\n" for line in [HEADER, *ROWS])
    assert answer_of(short, ask) == whole


def test_other_spellings_of_the_same(ask):
    text = HEADER + "".join(ROWS)
    whole = answer_of(text, ask)
    swapped = [",".join([*line[:-1].split(",", 1)[::-1]]) + "\n" for line in [HEADER, *ROWS]]
    for same in (
        text.replace("\n", "\r\n"),
        "\ufeff" + text,
        text.replace(HEADER, HEADER.upper()),
        text.replace(HEADER, HEADER.replace(" Id", " ID").lower()),
        text.replace("\n", "\n\n\r\n"),
        text[:-1],
        "".join(swapped),
    ):
        assert answer_of(same, ask) == whole


def test_bad_rows_are_skipped_and_counted(ask):
    whole = answer_of(HEADER + "".join(ROWS), ask)
    bad = [
        "x" + ROWS[2],
        ROWS[2].replace("3000", "-3000"),
        ROWS[2].replace("3000", "99999999999999999999"),
        ROWS[2].replace(",5,5,", ",5,five,"),
        ROWS[2].replace(",5,5,0,", ",5,5,npu,"),
        ROWS[2].replace(",0x", ",0y", 1),
        ROWS[2].replace("}", ""),
        ROWS[2].replace("MALLOC", "MAL\x01LOC"),
        '3,MALLOC,PTA,"N"/A,3000,5,5,0,0x1,,,\n',
        "3,MALLOC\n",
        "3" + "," * 11 + "\n",
        "3" + "," * 40 + "\n",
        "nonsense\n",
        "\0\0\0\n",
    ]
    for dirt in bad:
        r, answer, text = ask(HEADER + "".join(ROWS[:3]) + dirt + "".join(ROWS[3:]))
        assert r.returncode == 0, (dirt, r.stderr)
        assert any("1 row" in note and "malformed" in note for note in answer["notes"]), dirt
        assert text.startswith("Incomplete: 1 row is malformed. ")
        assert answer.pop("incomplete").startswith("Incomplete: 1 row is malformed. ")
        answer.pop("notes")
        assert {"incomplete": None, **answer} == whole, dirt
    r, answer, _ = ask(HEADER + "".join(bad) + "".join(ROWS))
    assert any(f"{len(bad)} rows" in note for note in answer["notes"])


def test_the_last_line_is_cut_off(ask):
    whole = answer_of(HEADER + "".join(ROWS), ask)
    half = '8,MALLOC,PTA,N/A,8000,5,5,0,0x8000,"{allocation_id:8,size:1}",,"a()\nb()\n"\n'
    for n in range(1, len(half) - 5, 7):
        r, answer, text = ask(HEADER + "".join(ROWS) + half[:n])
        assert r.returncode == 0, r.stderr
        assert any("middle of a row" in note for note in answer["notes"]), half[:n]
        assert text.startswith("Incomplete: the file is cut off at its end")
        assert not answer.pop("lost")["exact"] and answer.pop("incomplete") in " ".join(text.split())
        answer.pop("notes")
        assert {"incomplete": None, "lost": whole["lost"], **answer} == whole


def test_rows_in_any_order(ask):
    """Programs before this one wrote the rows of a block together when it died."""
    whole = answer_of(HEADER + "".join(ROWS), ask)
    rng = random.Random(3)
    for _ in range(5):
        mixed = ROWS[:]
        rng.shuffle(mixed)
        assert answer_of(HEADER + "".join(mixed), ask) == whole


def test_sizes_beyond_8_gib(ask):
    for size in (9 << 30, (1 << 40) + 7):
        r, answer, _ = ask(HEADER + block(1, size) + block(2, 64) + block(3, 64, "FREE", of=2))
        assert r.returncode == 0 and "malformed" not in str(answer.get("notes"))
        text = json.dumps(answer)
        assert str(size) in text or str(size + 64) in text


def test_quotes_and_newlines_in_names(ask):
    nasty = '"a ""quoted"", name\nof two lines\r\n"'
    stack = '"f(""x"", 1)\n/lib/libjob.so(g+0x1) [0x2]\n"'
    rows = [row(1, "OP_LAUNCH", "ATEN_START", nasty), block(2, 4096, stack=stack)]
    rows += [row(3, "OP_LAUNCH", "ATEN_END", nasty), "4,OP_LAUNCH,ATEN_START,a\"b,4000,5,5,0,N/A,,,\n"]
    r, answer, text = ask(HEADER + "".join(rows) + "bad\n")
    assert r.returncode == 0, r.stderr
    assert any("1 row" in note and "malformed" in note for note in answer["notes"])


def test_numbers_at_their_ends(ask):
    most = (1 << 64) - 1
    for text in (
        block(1, most),
        block(1, 0),
        block(1, 1, time=most) + block(2, 1, time=0),
        block(1, 5).replace("size:5", "size:-5"),
        block(1, 5).replace("size:5", "size:" + "9" * 30),
        block(1, 5).replace("size:5", "size:"),
        block(1, 5).replace("size:5,", ""),
        block(1, 5).replace("allocation_id:1,", ""),
        "".join(block(i, most) for i in range(1, 20)),
        row(most >> 12, "FREE"),
    ):
        r, _, _ = ask(HEADER + text)
        assert r.returncode == 0, (text, r.stderr)


def test_a_dump_of_nothing(ask):
    r, _, text = ask(HEADER)
    assert r.returncode == 0 and text


@pytest.mark.parametrize("command", ANALYSES)
def test_a_run_that_stands_twice_in_a_directory(record, command):
    """As csv and as db, or as a copy: every row counts once, and the answer says so."""
    got = record("simtrain", "--steps", 4, "--fault", "leak", "--devices", 2)
    copy = record.tmp / "copy"
    shutil.copytree(got.process.dir, copy)
    r = record.sonde("mem", "export", "--format=db", "-o", record.tmp / "db", got.dir)
    assert r.returncode == 0, r.stderr
    opts = ["--json", *(["--no-write"] if command == "inefficient" else [])]
    once = json.loads(record.sonde("mem", command, *opts, copy).stdout)
    for n, path in enumerate([*record.tmp.glob("db/**/*.db"), *copy.glob("**/*.csv")]):
        shutil.copy(path, copy / f"memscope_dump_{n}{path.suffix}")
    r = record.sonde("mem", command, *opts, copy)
    assert r.returncode == 0, r.stderr
    twice = json.loads(r.stdout)
    assert "stand in more than one file" in " ".join(twice.pop("notes"))
    once.pop("notes")
    assert twice == once


def test_a_process_number_that_was_used_again(record):
    """IDs begin again with the second process; its rows without a device are no doubles."""
    for n, steps in [(0, 3), (1, 5)]:
        rows = [row(i, "SYSTEM", "STEP", time=10**6 * n + i).replace(",0,N/A", ",N/A,N/A") for i in range(steps)]
        (record.tmp / f"memscope_dump_{n}.csv").write_text(HEADER + "".join(rows))
    r = record.sonde("mem", "show", "--json", record.tmp)
    assert json.loads(r.stdout)["counts"]["steps"] == 8, r.stderr


def test_more_dumps_than_files_may_be_open(record):
    for n in range(100):
        (record.tmp / f"memscope_dump_{n}.csv").write_text(HEADER + block(1, 4096, pid=n + 1))
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1024))
    r = record.sonde("mem", "show", "--json", record.tmp, preexec_fn=few)
    assert r.returncode == 0, r.stderr
    assert len(json.loads(r.stdout)["processes"]) == 100


# A window title, colours (with ESC, with U+009B and with a single byte), a turned direction.
COMMANDS = b"\x1b]0;owned\x07\x1b[31m\xc2\x9b31m\x9b31m\xe2\x80\xae\x7f"


def test_nothing_commands_the_terminal(ask):
    stack = b'"' + COMMANDS + b"/libjob.so(g" + COMMANDS + b'+0x1) [0x2]\n"'
    data = b"".join(
        block(n, 4096, stack="STACK").replace("size:", "owner:PTA@NAME,size:").encode()
        + row(n + 20, "SYSTEM", "STEP", time=n * 1000 + 1).encode()
        for n in range(1, 8)
    )
    data = data.replace(b"STACK", stack).replace(b"NAME", COMMANDS)
    r, _, text = ask(HEADER.encode() + data)
    assert r.returncode == 0, r.stderr
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]", text), text


def test_a_path_that_is_no_text(record):
    """Any bytes make a path; JSON is UTF-8."""
    where = os.fsencode(record.tmp) + b"/\xff\x1b[31m"
    os.mkdir(where)
    ops = row(1, "OP_LAUNCH", "ATEN_END", "aten.add") + block(2, 4096)
    with open(where + b"/d.csv", "w") as f:
        f.write(HEADER + ops + "bad\n")
    path = os.fsdecode(where + b"/d.csv")
    for command in ["leaks", "show"]:
        r = record.sonde("mem", command, "--json", path)
        assert r.returncode == 0 and "malformed" in json.loads(r.stdout)["notes"][0], r.stderr
    r = record.sonde("mem", "compare", "--json", "-o", os.fsdecode(where), path, path)
    assert r.returncode == 0 and json.loads(r.stdout)["identical"], r.stderr
    r = record.sonde("mem", "leaks", path + "x")
    assert r.returncode == 1 and b"?[31m/d.csvx" in r.stderr and b"\x1b" not in r.stderr


@pytest.mark.parametrize("form", ["csv", "db"])
def test_amended_by_inefficient(record, form):
    """Findings are written into the dump itself; once more changes nothing, dirt stays."""
    opts = [f"--format={form}", "--events=alloc,free,launch,access"]
    got = record("simtrain", "--aten", "--steps", 4, "--fault", "late", opts=opts)
    path = got.process.files["0"]
    before = path.read_bytes()
    r = record.sonde("mem", "inefficient", "--no-write", "--json", path)
    assert r.returncode == 0, r.stderr
    assert path.read_bytes() == before
    r = record.sonde("mem", "inefficient", "--json", path)
    assert r.returncode == 0, r.stderr
    once = path.read_bytes()
    assert b"late_deallocation" in once and b"late_deallocation" not in before
    r = record.sonde("mem", "inefficient", "--json", path)
    assert r.returncode == 0, r.stderr
    assert path.read_bytes() == once
    assert not [p for p in path.parent.iterdir() if p.name.startswith(path.name + ".")]
