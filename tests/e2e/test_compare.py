# SPDX-License-Identifier: MulanPSL-2.0
"""Comparing two runs: every line of the result against a second program, from every form."""

import csv
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

import dumpcheck
from recording import clean_env, wait_finished

HEAD = (
    ",,,Base,Compare\n"
    "Event,Name,Device Id,Allocated Memory(byte),Allocated Memory(byte),Diff Memory(byte)\n"
)
OPS = ("ATEN_END", "ATB_END")
KERNELS = ("KERNEL_LAUNCH",)


# --- the same once more, straight from the description ---


def align(a, b):
    """[(index in a or None, index in b or None)]: greedy forward search, every row kept."""
    rows = []
    for d in range(len(a) + len(b) + 1):
        row = {}
        for k in range(-d, d + 1, 2):
            if d == 0:
                x = 0
            elif k == -d or (k != d and rows[-1][k - 1] < rows[-1][k + 1]):
                x = rows[-1][k + 1]
            else:
                x = rows[-1][k - 1] + 1
            while x < len(a) and x - k < len(b) and a[x] == b[x - k]:
                x += 1
            row[k] = x
            if x >= len(a) and x - k >= len(b):
                return walk(rows, len(a), len(b))
        rows.append(row)


def walk(rows, x, y):
    path = []
    while rows:
        d, row, k = len(rows), rows.pop(), x - y
        if k == -d or (k != d and row[k - 1] < row[k + 1]):
            from_x, from_y, step = row[k + 1], row[k + 1] - k - 1, (None, 1)
        else:
            from_x, from_y, step = row[k - 1], row[k - 1] - k + 1, (1, None)
        while x > from_x + (step[0] or 0) and y > from_y + (step[1] or 0):
            x, y = x - 1, y - 1
            path.append((x, y))
        x, y = from_x, from_y
        path.append((x if step[0] else None, y if step[1] else None))
    while x:
        x, y = x - 1, y - 1
        path.append((x, y))
    return path[::-1]


def calls(rows, device, types, framework):
    """[(event, name, memory)] of one device."""
    rows = sorted((r for r in rows if r.device == device), key=lambda r: (r.time, r.id))
    found, waiting = [], []
    for r in rows:
        if r.type in types:
            found.append([r.event, r.name, 0])
            waiting.append(found[-1])
        elif r.event in ("MALLOC", "FREE") and r.type in framework:
            for call in waiting:
                call[2] = int(r.attr["size"])
            waiting = []
    return found


def expected(base, other, types=OPS, framework=("PTA", "PTA_WORKSPACE")):
    lines = []
    devices = {r.device for r in [*base, *other] if r.device.isdigit()}
    for device in sorted(devices, key=int):
        a = calls(base, device, types, framework)
        b = calls(other, device, types, framework)
        for i, k in align([c[1] for c in a], [c[1] for c in b]):
            event, name, _ = a[i] if i is not None else b[k]
            x, y = (a[i][2] if i is not None else None), (b[k][2] if k is not None else None)
            sizes = ["N/A" if v is None else str(v) for v in (x, y)]
            lines.append([event, name, device, *sizes, str((y or 0) - (x or 0))])
    return lines


# --- running it ---


class Compared:
    def __init__(self, result, out):
        self.result, self.code = result, result.returncode
        self.text, self.errors = result.stdout, result.stderr
        self.path = None
        for self.path in sorted(pathlib.Path(out).glob("compare/*")):
            assert self.path.name.startswith("memory_compare_"), self.path

    @property
    def lines(self):
        data = self.path.read_text()
        assert data.startswith(HEAD) and data.endswith("\n")
        return list(csv.reader(data[len(HEAD) :].splitlines(keepends=True), strict=True))


@pytest.fixture
def compare(build, tmp_path):
    runs = []

    def run(a, b, *options, old=False, **kw):
        runs.append(1)
        out = tmp_path / f"result{len(runs)}"
        if old:
            words = [build / "bin" / "msmemscope", "--compare", f"--input-path={a},{b}"]
        else:
            words = [build / "bin" / "sonde", "mem", "compare", a, b]
        result = subprocess.run(
            [*map(str, words), "-o", str(out), *options],
            env=clean_env(tmp_path),
            cwd=kw.pop("cwd", tmp_path),
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Compared(result, out)

    return run


def check(compared, want, code=0):
    assert (compared.code, compared.errors) == (code, "")
    assert compared.lines == want
    assert str(compared.path) in compared.text


# --- recorded runs ---

JOB = ["--aten", "--steps", 3]
OTHERS = {
    "layers": [*JOB, "--layers", 6],
    "seed": [*JOB, "--seed", 7],
    "steps": ["--aten", "--steps", 5],
}


@pytest.mark.parametrize("other", OTHERS)
def test_every_line_is_right(record, compare, other):
    a, b = record("simtrain", *JOB), record("simtrain", *OTHERS[other])
    want = expected(a.rows, b.rows)
    assert len(want) > 100 and any(line[5] != "0" for line in want)
    for old in (False, True):
        check(compare(a.out, b.out, old=old), want)
        check(compare(a.process.files["0"], b.process.files["0"], old=old), want)
    check(compare(a.dir, b.dir), want)
    check(compare(a.dir / "events.sonde", b.process.files["0"]), want)
    back = compare(b.out, a.out)
    check(back, expected(b.rows, a.rows))
    assert "only in" in back.text or "the memory is not" in back.text


def test_forms_and_call_stacks(record, compare):
    """Embedded newlines, databases and both vocabularies: it is all the same run."""
    plain = record("simtrain", *JOB)
    forms = [["--format=db"], ["--call-stack=c:5"]]
    others = [record("simtrain", *JOB, opts=opts) for opts in forms]
    old_words, _ = record.raw("simtrain", *JOB, opts=["--compat=26.0", "--call-stack=c:5"])
    wait_finished(*old_words.glob("recording_*"))
    for out in [*(got.out for got in others), old_words]:
        c = compare(plain.out, out)
        check(c, expected(plain.rows, plain.rows))
        assert all(line[5] == "0" for line in c.lines)
        assert c.text.startswith(f"Both are the same: {len(c.lines)} operator calls on 1 device")
    longer = record("simtrain", *OTHERS["layers"], opts=["--call-stack=c:5", "--format=db"])
    check(compare(others[1].out, longer.out), expected(plain.rows, longer.rows))


def test_kernels(record, compare):
    """Launches come out of the order of time; the result does not depend on that."""
    opts = ["--level=kernel"]
    a = record("simtrain", "--steps", 3, opts=opts)
    b = record("simtrain", "--steps", 3, "--layers", 5, opts=opts)
    want = expected(a.rows, b.rows, KERNELS)
    assert len(want) > 50 and all(line[0] == "KERNEL_LAUNCH" for line in want)
    for old in (False, True):
        check(compare(a.out, b.out, "--level=kernel", old=old), want)
    check(compare(a.dir, b.dir, "--level=kernel"), want)
    assert compare(a.out, a.out, "--level=kernel").text.startswith("Both are the same: ")


def test_operators_and_kernels_together(record, compare):
    opts = ["--level=op,kernel"]
    a = record("simtrain", *JOB, opts=opts)
    b = record("simtrain", *JOB, "--layers", 5, opts=opts)
    want = expected(a.rows, b.rows, OPS + KERNELS)
    assert {line[0] for line in want} == {"OP_LAUNCH", "KERNEL_LAUNCH"}
    check(compare(a.out, b.out, "--level=op,kernel"), want)


def test_devices_one_by_one(record, compare):
    a = record("simtrain", *JOB, "--devices", 3)
    b = record("simtrain", *JOB, "--devices", 2, "--layers", 5)
    want = expected(a.rows, b.rows)
    assert {line[2] for line in want} == {"0", "1", "2"}
    c = compare(a.out, b.out, "--json")
    assert c.lines == want
    answer = json.loads(c.text)
    assert [d["device"] for d in answer["devices"]] == ["0", "1", "2"]
    assert answer["devices"][2]["calls"]["compare"] == 0
    (project,) = a.out.glob("msmemscope_*_ascend")
    check(compare(project, b.out), want)
    check(compare(project / "device_1", b.out), expected(a.process.by_device["1"], b.rows))


def test_mindspore(record, compare):
    opts = ["--level=op,kernel"]
    a = record("simtrain", "--steps", 2, "--pool", "mindspore", opts=opts)
    b = record("simtrain", "--steps", 2, "--pool", "mindspore", "--layers", 5, opts=opts)
    for old in (False, True):
        c = compare(a.out, b.out, old=old)
        assert c.code == 1 and c.path is None and c.text == ""
        assert "MindSpore has no operator rows" in c.errors and "--level=kernel" in c.errors
        assert ("[msmemscope] ERROR: Memory comparison failed!" in c.errors) == old
    want = expected(a.rows, b.rows, KERNELS, ("MindSpore",))
    check(compare(a.out, b.out, "--level=kernel"), want)
    pta = record("simtrain", *JOB, opts=opts)
    c = compare(a.out, pta.out, "--level=kernel")
    assert c.code == 1 and "both PTA and MindSpore" in c.errors


def test_atb_alone_counts(record, compare):
    opts = ["--level=op,kernel"]
    a = record("simtrain", "--steps", 2, "--pool", "atb", opts=opts)
    b = record("simtrain", "--steps", 2, "--pool", "atb", "--layers", 5, opts=opts)
    want = expected(a.rows, b.rows, KERNELS, ("ATB",))
    assert any(line[3] not in ("0", "N/A") for line in want)
    check(compare(a.out, b.out, "--level=kernel"), want)


# --- what is said ---


def test_json(record, compare):
    a, b = record("simtrain", *JOB), record("simtrain", *OTHERS["layers"])
    want = expected(a.rows, b.rows)
    c = compare(a.out, b.out, "--json", "--top=3")
    answer = json.loads(c.text)
    assert answer["csv"] == str(c.path) and c.lines == want
    only_b = [line for line in want if line[3] == "N/A"]
    other = [line for line in want if "N/A" not in line and line[5] != "0"]
    differ = [line for line in want if "N/A" in line or line[5] != "0"]
    n = answer["calls"]
    assert (n["only_base"], n["only_compare"]) == (len(want) - n["compare"], len(only_b))
    assert n["other_memory"] == len(other)
    assert answer["memory"]["diff_bytes"] == sum(int(line[5]) for line in want)
    assert answer["memory"]["both_diff_bytes"] == sum(int(line[5]) for line in other)
    assert not answer["identical"] and answer["framework"] == "PTA"
    assert answer["differences_total"] == len(differ) and len(answer["differences"]) == 3
    largest = sorted((abs(int(line[5])) for line in differ), reverse=True)[:3]
    assert [abs(d["diff_bytes"]) for d in answer["differences"]] == largest
    sums = {}
    for line in want:
        sums[line[1]] = sums.get(line[1], 0) + int(line[5])
    for name in answer["names"]:
        assert name["memory"]["diff_bytes"] == sums[name["name"]]
    same = json.loads(compare(a.out, a.out, "--json").text)
    assert same["identical"] and same["differences"] == same["names"] == []


def test_text(record, compare):
    a, b = record("simtrain", *JOB), record("simtrain", *OTHERS["layers"])
    c = compare(a.out, b.out)
    n = json.loads(compare(a.out, b.out, "--json").text)
    first = c.text.split("\n\n")[0].replace("\n", " ")
    assert first.startswith("The sequences differ: ")
    assert f"{n['calls']['only_compare']} operator calls only in compare" in first
    assert f"{n['calls']['both']} in both" in first
    assert n["names"][0]["name"] in c.text
    assert c.text.endswith(f"Every call is in {c.path}\n")
    assert "Largest differences" not in compare(a.out, b.out, "--top=0").text


def test_fail_on(record, compare):
    a, b = record("simtrain", *JOB), record("simtrain", *OTHERS["seed"])
    assert compare(a.out, b.out, "--fail-on=diff").code == 3
    assert compare(a.out, b.out, "--fail-on", "nothing").code == 0
    assert compare(a.out, a.out, "--fail-on=diff").code == 0


# --- what is read ---


def test_the_newest_dump_of_a_directory(record, compare, tmp_path):
    old, new = record("simtrain", *OTHERS["layers"]), record("simtrain", *JOB)
    place = tmp_path / "place"
    for age, got in ((100, old), (10, new)):
        (project,) = got.out.glob("msmemscope_*_ascend")
        shutil.copytree(project, place / project.name, dirs_exist_ok=True)
        for path in (place / project.name).rglob("*"):
            os.utime(path, (1700000000 - age, 1700000000 - age))
    check(compare(place, old.out), expected(new.rows, old.rows))
    for path in place.rglob("*.csv"):
        if path.read_bytes() == old.process.files["0"].read_bytes():
            os.utime(path, (1700000000, 1700000000))
    check(compare(place, old.out), expected(old.rows, old.rows))
    assert compare(os.path.relpath(place, tmp_path), old.out).code == 0


def test_what_was_compared_is_said(record, compare, tmp_path):
    """A directory may stand for a dump or a recording, and a dump may be older than a recording beside it."""
    got, bare = record("simtrain", *JOB), tmp_path / "bare"
    alone = bare / got.dir.name
    shutil.copytree(got.dir, alone)
    (dump,) = got.out.glob("msmemscope_*_ascend/device_0/dump/*.csv")
    result = compare(got.out, bare)
    lines = result.text.splitlines()[-3:]
    assert lines[0] == f"Base: the newest dump {dump}"
    assert lines[1] == f"Compare: the newest recording {alone}"
    inputs = json.loads(compare(alone, got.out, "--json").text)["inputs"]
    assert inputs["base"] == {"kind": "recording", "files": [str(alone)], "newer_recording": None}
    assert (inputs["compare"]["kind"], inputs["compare"]["files"]) == ("dump", [str(dump)])
    by_site = compare(got.out, alone, "--level=site").text
    assert f"Base: the newest recording {got.dir}\n" in by_site
    assert f"Compare: the recording {alone}\n" in by_site
    os.utime(dump, (1700000000, 1700000000))
    old = f"Base: the newest dump {dump}; the recording {got.dir} is newer and was not read"
    assert old in compare(got.out, bare).text


def write(path, *rows, header=dumpcheck.HEADER):
    path.write_text(header + "\n" + "".join(r + "\n" for r in rows))
    return path


def op(n, name, device=0, time=None):
    return f"{n},OP_LAUNCH,ATEN_END,{name},{n if time is None else time},1,1,{device},N/A,,,"


def malloc(n, size, pool="PTA"):
    attr = f'"{{allocation_id:1,addr:0x0000000000003039,size:{size},total:9,used:9}}"'
    return f"{n},MALLOC,{pool},N/A,{n},1,1,0,0x0000000000003039,{attr},,"


def test_bad_rows_are_passed_over_and_told(compare, tmp_path):
    a = write(tmp_path / "a.csv", op(1, "x"), "nonsense", malloc(2, 5), op(3, "y"), malloc(4, 6))
    b = write(tmp_path / "b.csv", op(1, "x"), malloc(2, 5), "1,2,3", "", op(3, "y"), "x" * 5000)
    c = compare(a, b)
    x, y = ["OP_LAUNCH", "x", "0", "5", "5", "0"], ["OP_LAUNCH", "y", "0", "6", "0", "-6"]
    assert c.lines == [x, y]
    assert "Of base: 1 row is malformed" in c.text.replace("\n", " ")


def test_odd_headers_names_and_order(compare, tmp_path):
    a = write(
        tmp_path / "a.csv",
        op(7, '"=cmd(""x"")"'),
        op(9, "late", time=3),
        malloc(8, 1),
        op(10, "on the host", device="cpu"),
        op(11, "nowhere", device="N/A"),
        header=dumpcheck.HEADER.upper(),
    )
    b = write(tmp_path / "b.csv", op(1, "late"), op(2, '"=cmd(""x"")"'), malloc(3, 1))
    c = compare(a, b)
    assert (c.code, c.errors) == (0, "")
    assert [line[1] for line in c.lines] == ["late", "'=cmd(\"x\")"]
    assert all(line[2:] == ["0", "1", "1", "0"] for line in c.lines)


def test_negative_sizes_of_frees_count_as_they_stand(compare, tmp_path):
    """As msLeaks of 2025 wrote them."""
    free = malloc(2, -5).replace("MALLOC", "FREE")
    c = compare(write(tmp_path / "a.csv", op(1, "x"), free), write(tmp_path / "b.csv", op(1, "x"), malloc(2, 7)), "--json")
    assert c.lines == [["OP_LAUNCH", "x", "0", "-5", "7", "12"]]
    memory = json.loads(c.text)["memory"]
    assert (memory["base_bytes"], memory["compare_bytes"], memory["diff_bytes"]) == (-5, 7, 12)
    assert "-5 B" in compare(tmp_path / "a.csv", tmp_path / "b.csv").text


def test_operators_that_were_asked_for(record, compare):
    """It does not advise what was done."""
    got = record("leaky", "marks", 3)
    c = compare(got.dir, got.dir, "--level=op")
    assert c.code == 1 and "the jobs announced no operators" in c.errors
    assert "--events" not in c.errors and "--level=site" in c.errors


def test_nothing_to_compare(compare, tmp_path):
    a = write(tmp_path / "a.csv", malloc(1, 5))
    for old in (False, True):
        c = compare(a, a, *([] if old else ["--level=op"]), old=old)
        assert c.code == 1 and c.path is None and c.text == ""
        assert "neither input has an operator row" in c.errors
        assert ("[msmemscope] ERROR: Memory comparison failed!" in c.errors) == old
    c = compare(a, a)
    assert c.code == 0 and "by call site" in c.text and c.lines[0][0] == "CALL_SITE"
    c = compare(write(tmp_path / "b.csv"), tmp_path / "b.csv")
    assert c.code == 1 and "there is nothing to compare" in c.errors


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["a.csv"], 2, "Try 'sonde mem compare --help'."),
        (["a.csv", "a.csv", "a.csv"], 2, "Try"),
        (["a.csv", "a.csv", "--level=2"], 2, "op, kernel, op,kernel or site"),
        (["a.csv", "a.csv", "--fail-on=leak"], 2, "nothing or diff"),
        (["a.csv", "nowhere.csv"], 1, "'nowhere.csv'"),
        (["a.csv", "empty"], 1, "'empty'"),
        (["a.csv", "text"], 1, "not a memory dump"),
        (["a.csv", "/dev/null"], 1, "/dev/null"),
        (["a.csv", "a.csv", "-o", "text/x"], 1, "text"),
    ],
)
def test_wrong_inputs(build, tmp_path, words, code, said):
    write(tmp_path / "a.csv", op(1, "x"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello\n")
    r = subprocess.run(
        [str(build / "bin" / "sonde"), "mem", "compare", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (r.returncode, r.stdout) == (code, "")
    assert said in r.stderr and r.stderr.startswith("sonde mem compare: ")
    assert not (tmp_path / "memscopeDumpResults").exists()


def test_results_do_not_overwrite_each_other(build, compare, tmp_path):
    a = write(tmp_path / "a.csv", op(1, "x"))
    for _ in range(3):
        subprocess.run(
            [str(build / "bin" / "sonde"), "mem", "compare", "-o", "r", str(a), str(a)],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            timeout=60,
        )
    assert len(list((tmp_path / "r" / "compare").iterdir())) == 3


def test_full_disk(build, tmp_path):
    """Nothing is left, and it is said."""
    a = write(tmp_path / "a.csv", *(op(n, f"name{n}") for n in range(20000)))
    r = subprocess.run(
        ["bash", "-c", f"ulimit -f 100; exec {build}/bin/sonde mem compare -o r {a} {a}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    assert r.returncode == 1 and "cannot write" in r.stderr
    assert list((tmp_path / "r" / "compare").iterdir()) == []

