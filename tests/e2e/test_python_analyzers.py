# SPDX-License-Identifier: MulanPSL-2.0
"""Offline analysis from Python: check_leaks(), check_inefficient(), analyze()."""

import json
import os
import pty
import shutil
import signal
import subprocess

import pytest

from pythons import every_python
from recording import HOOKS, Recorder
from waiting import wait_until

STACKS = "--call-stack=c:10"
PYTHONS = [p for p in every_python() if not p.values[0] or p.values[0].minor >= 8]


@pytest.fixture
def run(record):
    """Runs Python code with the package; its own files are in the test's directory."""

    def call(code, python="python3", check=True, **env):
        r = subprocess.run(
            [str(python), "-c", code],
            env=record.env(PYTHONPATH=record.build / "python", **env),
            cwd=record.tmp,
            capture_output=True,
            timeout=60,
        )
        assert not check or r.returncode == 0, r.stderr.decode()
        return r

    return call


def raised(run, code, **env):
    """The type and the words of the exception that the code ends with."""
    r = run(f"import msmemscope\n{code}", check=False, **env)
    assert r.returncode == 1, (r.stdout, r.stderr)
    last = r.stderr.decode().strip().splitlines()[-1]
    return tuple(last.split(": ", 1))


@pytest.fixture(scope="module")
def leaky(build, tmp_path_factory):
    """One recording for all tests that only read it."""
    return Recorder(build, tmp_path_factory.mktemp("leaky"))("leaky", "marks", 5, opts=[STACKS])


def exported(record, recording, form):
    out = record.tmp / f"as-{form}"
    r = record.sonde("mem", "export", f"--format={form}", "-o", out, recording)
    assert r.returncode == 0, r.stderr
    (path,) = out.rglob(f"device_0/dump/*.{form}")
    return path


LEAKS = """
import json, msmemscope
found = msmemscope.check_leaks({path!r}, mstx_info="round", start_index={start})
assert isinstance(found, list) and repr(found) == "<1 finding>"
print("@@@")
print(json.dumps([found, found.answer["devices"]]))
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_leaks_with_every_python(record, run, leaky, python):
    path = str(leaky.process.files["0"])
    said, _, told = (
        run(LEAKS.format(path=path, start=0), python.path).stdout.decode().partition("@@@\n")
    )
    program = record.sonde("mem", "leaks", "--mark=round", "--compat=26.0", "--start=0", path)
    assert said == program.stdout.decode()
    ((block,), (device,)) = json.loads(told)
    assert (block["device"], block["pid"], block["bytes"]) == ("0", leaky.process.pid, 5000)
    (row,) = [r for r in leaky.of("MALLOC") if int(r.id) == block["row"]]
    assert row.ptr == block["address"] and row.attr["size"] == "5000"
    assert "lose_memory" in "".join(device["places"][0]["c_stack"])


def test_leaks_of_every_kind_of_input(record, run, leaky):
    paths = [
        leaky.process.files["0"],
        exported(record, leaky.dir, "db"),
        leaky.dir,
        leaky.dir / "events.sonde",
        leaky.out,
    ]
    answers = []
    for path in paths:
        r = run(LEAKS.format(path=str(path), start=2)).stdout.decode()
        assert "====== ERROR: Detected memory leaks on device 0 ======\n" in r
        assert f"Direct Hal memory leak of {5000 / 1024 / 1024} Mb(s) at 0x" in r
        answers.append(json.loads(r.partition("@@@\n")[2])[0])
    assert answers[0][0]["bytes"] == 5000
    assert all(a == answers[0] for a in answers)


def test_marks_that_do_not_suffice(run, leaky):
    """Said, as before, and no exception: a script goes on to the next file."""
    code = f"""
import msmemscope
found = msmemscope.check_leaks({str(leaky.process.files["0"])!r}, "no such mark", 0)
print(list(found), found.answer["failed"])
found = msmemscope.check_leaks({str(leaky.process.files["0"])!r}, "round", 3)
print(list(found), found.answer["failed"])
"""
    text = run(code).stdout.decode()
    assert (
        "ERROR: Device 0 has fewer than 3 data points. Please re-collect the data points.\n" in text
    )
    assert "INFO: Start index 3 is out of bounds. Device 0 has a total of 5 MSTX events.\n" in text
    assert text.count("[] True\n") == 2
    assert '"round" (5)' in " ".join(text.split())


def test_as_the_documents_call_it(record, run, leaky):
    """The analyzer is made first and told afterwards; it can be told again."""
    inefficient = shutil.copyfile(leaky.process.files["0"], record.tmp / "copy.csv")
    code = f"""
from msmemscope.analyzer import InefficientAnalyzer, InefficientConfig, LeaksAnalyzer, LeaksConfig
leaks_analyzer = LeaksAnalyzer()
path = {str(leaky.process.files["0"])!r}
assert len(leaks_analyzer.analyze(LeaksConfig(input_path=path, mstx_info="round", start_index=0))) == 1
assert len(leaks_analyzer.analyze(LeaksConfig(path, "round", 9))) == 0
config = InefficientConfig({str(inefficient)!r}, mem_size=0, inefficient_type=None)
assert config.inefficient_type == ["early_allocation", "late_deallocation", "temporary_idleness"]
assert InefficientAnalyzer().analyze(config) == InefficientAnalyzer(config).analyze()
"""
    run(code)


def test_inside_a_recorded_job(record, leaky):
    """Neither the libraries of the job nor its recording reach the program that does the work."""
    code = (
        "import msmemscope, os; before = dict(os.environ);"
        f"found = msmemscope.check_leaks({str(leaky.process.files['0'])!r}, 'round');"
        "assert len(found) == 1 and before == dict(os.environ)"
    )
    out, r = record.raw("python3", "-c", code, env={"PYTHONPATH": record.build / "python"})
    assert r.returncode == 0, r.stderr
    lib = record.build / "lib"
    r = subprocess.run(
        ["python3", "-c", code],
        env=record.env(
            PYTHONPATH=record.build / "python",
            LD_PRELOAD=":".join(str(lib / name) for name in HOOKS),
        ),
        cwd=record.tmp,
        capture_output=True,
        timeout=60,
    )
    assert r.returncode == 0, r.stderr


# --- inefficient ---

JOB = ["simtrain", "--aten", "--fault", "late", "--fault", "early", "--steps", 4, "--quiet"]
EVENTS = ["--events=alloc,free,launch,access", "--call-stack=c:20"]


@pytest.fixture(scope="module")
def wasteful(build, tmp_path_factory):
    """One recording for all of these tests: each works on a copy."""
    return Recorder(build, tmp_path_factory.mktemp("wasteful"))(*JOB, opts=EVENTS)


def copy_of(wasteful, tmp_path, name="copy.csv"):
    return shutil.copyfile(wasteful.process.files["0"], tmp_path / name)


def marked(path):
    return path.read_text().count("inefficient:")


def test_inefficient(record, run, wasteful, tmp_path):
    path = copy_of(wasteful, tmp_path)
    r = run(
        "import json, msmemscope\n"
        f"found = msmemscope.check_inefficient({str(path)!r})\n"
        "print('@@@'); print(json.dumps([found, found.answer]))"
    ).stdout.decode()
    said, _, told = r.partition("@@@\n")
    found, answer = json.loads(told)
    assert answer["judged"] and answer["idle_calls"] == 3000 and answer["min_bytes"] == 0
    assert len(answer["types"]) == 3
    assert {"early_allocation", "late_deallocation"} <= {p["kind"] for p in found}
    assert "use_buffer_once" in str(found) and "allocate_too_early" in str(found)
    rows = marked(path)
    assert rows > 0 and f"{rows} MALLOC rows of '{path}' were marked." in " ".join(said.split())
    # The same file and answer as with the program.
    other = copy_of(wasteful, tmp_path, "other.csv")
    p = record.sonde("mem", "inefficient", other)
    assert other.read_bytes() == path.read_bytes()
    assert p.stdout.decode().replace(str(other), str(path)) == said


def test_parameters_reach_the_program(run, wasteful, tmp_path):
    path = copy_of(wasteful, tmp_path)
    code = f"""
import msmemscope
def ask(**more):
    return msmemscope.analyze("inefficient", input_path={str(path)!r}, **more)
a = ask(mem_size=1 << 40)
assert not a and a.answer["min_bytes"] == 1 << 40, a.answer
a = ask(inefficient_type="late_deallocation", idle_threshold=7)
assert {{p["kind"] for p in a}} == {{"late_deallocation"}} and a.answer["idle_calls"] == 7
a = ask(inefficient_type=["temporary_idleness", "early_allocation"])
assert a.answer["types"] == ["early_allocation", "temporary_idleness"]
assert {{p["kind"] for p in a}} == {{"early_allocation"}}
"""
    run(code)


def test_a_recording_is_not_changed(run, wasteful):
    before = {p: p.stat().st_mtime_ns for p in wasteful.dir.rglob("*")}
    text = run(
        "import msmemscope\n"
        f"assert len(msmemscope.check_inefficient({str(wasteful.dir)!r})) >= 2"
    ).stdout.decode()
    assert "A recording is not changed" in text
    assert before == {p: p.stat().st_mtime_ns for p in wasteful.dir.rglob("*")}


def test_the_findings_are_not_cut(run, wasteful, tmp_path):
    """The program lists ten of each kind; the list has all."""
    path = copy_of(wasteful, tmp_path)
    run(
        "import msmemscope\n"
        f"found = msmemscope.check_inefficient({str(path)!r}, idle_threshold=1)\n"
        "assert len(found) == found.answer['places_total'] > 0"
    )


# --- mistakes ---


@pytest.mark.parametrize(
    "call, kind, words",
    [
        ("check_leaks('/nowhere.csv', 'x', 0)", "FileNotFoundError", "/nowhere.csv"),
        ("check_leaks(3, 'x', 0)", "TypeError", "int"),
        ("check_leaks(b'/etc/passwd', 'x', 0)", "TypeError", "input_path must be a str"),
        ("check_leaks('', 'x', 0)", "FileNotFoundError", "must name a dump or a recording"),
        ("check_leaks('a\\0b', 'x', 0)", "ValueError", "NUL"),
        ("check_leaks('a' * 5000, 'x', 0)", "OSError", "too long"),
        ("check_leaks('/etc/passwd', 'x', 0)", "ValueError", "does not end in .csv or .db"),
        ("check_leaks('/dev/null', 'x', 0)", "FileNotFoundError", "neither a file nor"),
        ("check_leaks('ok.csv', '', 0)", "ValueError", "mstx_info"),
        ("check_leaks('ok.csv', '  ', 0)", "ValueError", "mstx_info"),
        ("check_leaks('ok.csv', None, 0)", "TypeError", "mstx_info"),
        ("check_leaks('ok.csv', 'x', -1)", "ValueError", "start_index must be an int of 0 or more"),
        ("check_leaks('ok.csv', 'x', '1')", "ValueError", "start_index"),
        ("check_leaks('.', 'x', 0)", "FileNotFoundError", "neither a recording"),
        ("check_leaks('ok.csv', 'x', 1.0)", "ValueError", "start_index"),
        ("check_inefficient('ok.csv', mem_size=-1)", "ValueError", "mem_size must be an int of 0"),
        ("check_inefficient('ok.csv', idle_threshold=0)", "ValueError", "idle_threshold must be"),
        ("check_inefficient('ok.csv', inefficient_type=[])", "ValueError", "early_allocation"),
        ("check_inefficient('ok.csv', inefficient_type='early')", "ValueError", "late_dealloc"),
        ("check_inefficient('ok.csv', inefficient_type=3)", "ValueError", "temporary_idleness"),
        ("analyze('gaps', input_path='ok.csv')", "ValueError", "one of leaks, inefficient"),
        ("analyze('leaks', path='ok.csv')", "TypeError", "path"),
        ("get_analyzer_config(None)", "ValueError", "there is no analyzer None"),
        ("analyzer.LeaksAnalyzer().analyze()", "TypeError", "needs a LeaksConfig"),
        ("analyzer.LeaksAnalyzer().analyze('ok.csv')", "TypeError", "needs a LeaksConfig, not str"),
        ("check_leaks('ok.csv', 'x', 0)", "ValueError", "is not a memory dump"),
        ("check_inefficient('ok.csv')", "ValueError", "is not a memory dump"),
    ],
)
def test_mistakes(record, run, call, kind, words):
    (record.tmp / "ok.csv").write_text("no dump\n")
    name, text = raised(run, f"msmemscope.{call}")
    assert name == kind and words in text
    assert (record.tmp / "ok.csv").read_text() == "no dump\n"


@pytest.mark.needs("no-root")
def test_permissions(record, run):
    path = record.tmp / "ok.csv"
    path.write_text("x")
    path.chmod(0o400)
    kind, text = raised(run, "msmemscope.check_inefficient('ok.csv')")
    assert kind == "PermissionError" and "cannot be written" in text
    path.chmod(0)
    kind, text = raised(run, "msmemscope.check_leaks('ok.csv', 'x')")
    assert kind == "PermissionError" and "cannot be read" in text


def test_a_file_that_others_can_change(run, leaky, tmp_path):
    path = shutil.copyfile(leaky.process.files["0"], tmp_path / "copy.csv")
    code = f"import msmemscope; msmemscope.check_leaks({str(path)!r}, 'round')"
    assert run(code).stderr == b""
    path.chmod(0o646)
    assert b"can be modified by other users. Please confirm it is trusted." in run(code).stderr


def test_an_interrupt_ends_the_program(record, run, tmp_path):
    """A program that waits for a recorder: Ctrl-C gives a KeyboardInterrupt and leaves nothing."""
    fifo = tmp_path / "bin"
    fifo.mkdir()
    slow = fifo / "sonde"
    slow.write_text("#!/bin/sh\necho $$ > pid\nexec sleep 60\n")
    slow.chmod(0o755)
    (tmp_path / "x.csv").write_text("")
    code = (
        "import msmemscope, sonde\n"
        f"sonde.program = lambda name='sonde': {str(slow)!r}\n"
        "try:\n    msmemscope.check_leaks('x.csv', 'x')\n"
        "except KeyboardInterrupt:\n    print('interrupted')"
    )
    master, slave = pty.openpty()
    job = subprocess.Popen(
        ["python3", "-c", code],
        env=record.env(PYTHONPATH=record.build / "python"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=slave,
    )

    def pid():
        assert job.poll() is None
        return (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()

    wait_until(pid, "the pid of its child", 30)
    # On a terminal it says what takes so long.
    assert b"reading 'x.csv'" in os.read(master, 1000)
    child = int((tmp_path / "pid").read_text())
    job.send_signal(signal.SIGINT)
    assert job.communicate(timeout=30)[0] == b"interrupted\n"
    os.close(slave)
    os.close(master)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_what_there_is(run):
    code = """
import msmemscope
from msmemscope import analyzer
assert msmemscope.list_analyzers() == ["leaks", "inefficient"]
for name, config in (("leaks", "LeaksConfig"), ("inefficient", "InefficientConfig")):
    assert msmemscope.get_analyzer_config(name)["config_class"] == config
    assert hasattr(analyzer, config)
assert msmemscope.get_analyzer_config("leaks")["parameters"] == [
    "input_path", "mstx_info", "start_index"]
assert msmemscope.get_analyzer_config("inefficient")["parameters"] == [
    "input_path", "mem_size", "inefficient_type", "idle_threshold"]
import sys
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""
    run(code)
