# SPDX-License-Identifier: MulanPSL-2.0
"""The package in every interpreter, started in every way that an interpreter can be started."""

import itertools
import json
import os
import random
import re
import subprocess
import sys
import zipfile

import dumpcheck
import pytest
from python_jobs import PRELUDE, Left
from pythons import every_python, free_threaded, one_per_minor, pythons
from recording import HOOKS

SUPPORTED = every_python(oldest=8)
PER_MINOR = one_per_minor(oldest=8)
NEWEST = [p for p in pythons() if p.minor >= 8][-1]

WINDOWS = """
before = take(11)
msmemscope.config(call_stack="python:5", analysis="leaks,decompose")
msmemscope.start()
first = take(101)
msmemscope.step()
give(first)
msmemscope.stop()
between = take(22)
msmemscope.start()
second = take(102)
msmemscope.step()
msmemscope.stop()
print("done")
"""


def check_windows(left):
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    assert left.sizes() == [101, 102]
    assert [r.type for r in left.of("SYSTEM")].count("START_TRACE") == 2
    assert [r.name for r in left.of("SYSTEM", "STEP")] == ["1", "2"]
    (row,) = [r for r in left.of("MALLOC") if r.attr["size"] == "101"]
    assert re.search(r"job\.py\(\d+\): take\n.*job\.py\(\d+\): <module>", row.py_stack), row


def test_config_json_says_what_was_recorded(jobs):
    """The recording's and the dump's; not the defaults with which the recorder began."""
    check_windows(left := jobs.run(NEWEST, WINDOWS))
    files = sorted(left.out.glob("*/config.json"))
    assert len(files) == 2
    for path in files:
        said = json.loads(path.read_text())
        assert said["isEffective"] and said["analysisType"] == 3, path
        assert said["enablePyStack"] and said["pyStackDepth"] == 5, path


# --- every interpreter ---


@pytest.mark.parametrize("python", SUPPORTED)
def test_no_preload(jobs, python):
    check_windows(jobs.run(python, WINDOWS))


@pytest.mark.parametrize("python", PER_MINOR)
def test_recipe_of_the_environment(jobs, python):
    check_windows(jobs.run(python, WINDOWS, env=jobs.recipe()))


@pytest.mark.parametrize("python", PER_MINOR)
def test_deferred(jobs, python):
    check_windows(jobs.run(python, WINDOWS, cli=["--collect-mode=deferred"]))


@pytest.mark.parametrize("python", PER_MINOR)
def test_immediate(jobs, python):
    left = jobs.run(python, WINDOWS.replace("stop()", "stop(); take(33)"), cli=[])
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    assert left.sizes() == [11, 101, 102]


# --- the document's recipe, as it stands there ---

DOCUMENT = """
import ctypes
acl = ctypes.CDLL(sys.argv[1] + "/libascendcl.so")
acl.aclInit(None)
acl.aclrtSetDevice(0)


def acl_take(size):
    p = ctypes.c_void_p()
    assert acl.aclrtMalloc(ctypes.byref(p), ctypes.c_size_t(size), 0) == 0


def train():
    acl_take(3 << 20)
    take(777)


acl_take(1 << 20)
os.makedirs(sys.argv[2], exist_ok=True)
msmemscope.config(call_stack="c:10,python:5", events="launch,alloc,free", level="0", device="npu", analysis="leaks,decompose", watch="op0,op1,full-content", data_format="db", output=sys.argv[2])
msmemscope.start()   # as the document has it
train()
msmemscope.stop()
acl_take(5 << 20)
print("done")
"""


@pytest.mark.parametrize("order", ["as written", "backwards", "shuffled"])
def test_document(jobs, build, tmp_path, order):
    hooks = {
        "as written": sorted(HOOKS),
        "backwards": sorted(HOOKS)[::-1],
        "shuffled": random.Random(6).sample(HOOKS, 5),
    }[order]
    out = tmp_path / "projects/output"
    left = jobs.run(NEWEST, DOCUMENT, build / "sim", out, env=jobs.recipe(hooks))
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    check_document(left, out)


def check_document(left, out):
    moved = Left(out, left.result)
    for session in left.recordings + moved.recordings:
        session.wait_finished()
    rows = moved.rows
    assert {p.suffix for p in dumpcheck.tree(out).values()} == {".db"}
    taken = [r for r in rows if r.event == "MALLOC" and "shadow" not in r.attr]
    assert [(r.type, int(r.attr["size"]) >> 20) for r in taken] == [("HAL", 3), ("PTA", 0)]
    assert all("train" in r.py_stack for r in taken)
    assert all(r.c_stack.strip('"') for r in taken)
    assert all(r.attr["owner"] for r in taken)


@pytest.mark.parametrize("mode", ["immediate", "deferred"])
def test_document_below_the_command(jobs, build, tmp_path, mode):
    """The launcher's place and form of the files stand; the rest is the program's to say."""
    left = jobs.run(
        NEWEST, DOCUMENT, build / "sim", tmp_path / "else", cli=[f"--collect-mode={mode}"]
    )
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    assert "can only be set once" in left.stderr
    # The runtime adds a little of its own to each.
    assert [s >> 20 for s in left.sizes()] == ([1, 3, 0] if mode == "immediate" else [3, 0])
    assert not list((tmp_path / "else").glob("*"))


def test_two_libraries_are_enough(jobs, build, tmp_path):
    """Users list what they need; each library brings what it needs itself."""
    for hooks in itertools.combinations(HOOKS, 2):
        if "libleaks_ascend_hal_hook.so" not in hooks:
            continue
        left = jobs.run(NEWEST, DOCUMENT, build / "sim", tmp_path / "o", env=jobs.recipe(hooks))
        assert (left.returncode, left.stdout) == (0, "done\n"), left


# --- every way to start an interpreter ---


@pytest.mark.parametrize("python", [PER_MINOR[0], PER_MINOR[-1]])
@pytest.mark.parametrize(
    "options,env",
    [
        (["-X", "dev"], {}),
        (["-X", "faulthandler"], {}),
        (["-X", "tracemalloc"], {}),
        (["-O"], {}),
        (["-W", "error"], {}),
        ([], {"PYTHONMALLOC": "malloc"}),
        ([], {"PYTHONDEVMODE": "1", "PYTHONASYNCIODEBUG": "1"}),
    ],
    ids=["dev", "faulthandler", "tracemalloc", "O", "W-error", "malloc", "devmode"],
)
def test_options_of_the_interpreter(jobs, python, options, env):
    left = jobs.run(python, WINDOWS, options=options, env=env)
    check_windows(left)
    assert "Warning" not in left.stderr.replace("[msmemscope] Warn", ""), left


@pytest.mark.parametrize("options", [["-I"], ["-S", "-E"], ["-I", "-S", "-E", "-B", "-s"]])
def test_isolated_interpreter(jobs, build, options):
    """Nothing of the environment's is read: the program finds the package by itself."""
    script = jobs.tmp / "isolated.py"
    path = f"import sys; sys.path.insert(0, {str(build / 'python')!r})\n"
    script.write_text(path + PRELUDE + WINDOWS)
    left = run(jobs, [NEWEST.path, *options, script])
    check_lines(left)


def run(jobs, words, **kw):
    """A command of the test's own, in a directory of its own."""
    place = jobs.place()
    r = subprocess.run(
        [str(w) for w in words],
        cwd=place,
        env=jobs.env(**kw.pop("env", {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
        **kw,
    )
    return Left(place / "memscopeDumpResults", r)


def check_lines(left):
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    assert left.sizes() == [101, 102]


def test_command_in_words(jobs):
    check_lines(run(jobs, [NEWEST.path, "-c", PRELUDE + WINDOWS]))


def test_program_on_standard_input(jobs):
    check_lines(run(jobs, [NEWEST.path, "-"], input=(PRELUDE + WINDOWS).encode()))


def test_module_and_runpy(jobs):
    (jobs.tmp / "lib").mkdir()
    (jobs.tmp / "lib/windows_of_mine.py").write_text(PRELUDE + WINDOWS)
    path = {"PYTHONPATH": f"{jobs.build / 'python'}:{jobs.tmp / 'lib'}"}
    check_lines(run(jobs, [NEWEST.path, "-m", "windows_of_mine"], env=path))
    code = "import runpy; runpy.run_module('windows_of_mine', run_name='__main__')"
    check_lines(run(jobs, [NEWEST.path, "-c", code], env=path))


def test_zipped_program(jobs):
    archive = jobs.tmp / "app.pyz"
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("__main__.py", PRELUDE + WINDOWS)
    check_lines(run(jobs, [NEWEST.path, archive]))


def test_no_environment_at_all(jobs, build):
    place = jobs.place()
    path = f"import sys; sys.path.insert(0, {str(build / 'python')!r})\n"
    r = subprocess.run(
        [NEWEST.path, "-c", path + PRELUDE + WINDOWS],
        cwd=place,
        env={},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    check_lines(Left(place / "memscopeDumpResults", r))


def test_closed_standard_streams(jobs):
    """Messages have nowhere to go; that is no reason to fail."""
    left = jobs.run(NEWEST, WINDOWS.replace('print("done")', ""), preexec_fn=close_streams)
    assert left.returncode == 0, left
    assert left.sizes() == [101, 102]


def close_streams():
    os.close(1)
    os.close(2)


# --- arguments ---


@pytest.mark.parametrize("python", PER_MINOR)
def test_wrong_arguments(jobs, python):
    code = """
def fails(error, words, **options):
    try:
        msmemscope.config(**options)
    except error as e:
        assert words in str(e), str(e)
    else:
        raise SystemExit("accepted: %r" % options)

config = msmemscope.config
config()
fails(ValueError, "Set msmemscope trace config failed!", colour="red")
fails(ValueError, "Set msmemscope trace config failed!", events="aloc")
fails(ValueError, "Set msmemscope trace config failed!", call_stack="python:1001")
fails(ValueError, "Set msmemscope trace config failed!", device="npu:32")
fails(ValueError, "NUL", events="alloc\\0")
fails(TypeError, "Value for argument 'level' must be a string (use quotes)", level=0)
fails(TypeError, "Value for argument 'events' must be a string (use quotes)", events=None)
for bad in ((1,), ("alloc",)):
    try:
        config(*bad)
    except TypeError as e:
        assert "config() takes no positional arguments" in str(e)
# Nothing of a refused call is applied.
config(call_stack="python:3")
fails(ValueError, "failed!", call_stack="python:7", level="5")
assert _sonde.settings()["py_depth"] == 3, _sonde.settings()
# Twice is once; what comes later of these is refused with a word.
config(format="db")
config(format="csv")
assert not os.path.exists("memscopeDumpResults")
msmemscope.stop()
msmemscope.step()
assert not os.path.exists("memscopeDumpResults")
print("done")
"""
    left = jobs.run(python, code)
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    assert left.stderr.count('"format","output_path","watch" can only be set once.') == 2, left


@pytest.mark.parametrize("python", PER_MINOR)
def test_import_starts_nothing(jobs, python):
    """No thread, no file, no change of the environment, no signal handler, nothing printed."""
    code = """
import signal, threading
assert threading.active_count() == 1 and len(os.listdir("/proc/self/task")) == 1
assert "SONDE_SESSION" not in os.environ
assert all(signal.getsignal(s) in (None, signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)
           for s in range(1, 32))
assert sys.getprofile() is None and sys.gettrace() is None
assert not [m for m in ("torch", "numpy", "torch_npu") if m in sys.modules]
assert os.listdir(".") == ["job.py"]
"""
    left = jobs.run(python, code)
    assert (left.returncode, left.stdout, left.stderr) == (0, "", ""), left


# Of the names with an underscore these belong to the stable ABI.
STABLE = set("""_Py_NoneStruct _Py_TrueStruct _Py_FalseStruct _Py_Dealloc
    _Py_NotImplementedStruct _Py_EllipsisObject
    _PyArg_ParseTuple_SizeT _PyArg_ParseTupleAndKeywords_SizeT _Py_BuildValue_SizeT
    _PyObject_CallFunction_SizeT _PyObject_CallMethod_SizeT""".split())


def test_same_binary_everywhere(build):
    """One extension, the stable ABI: nothing of one version's own is asked for."""
    (extension,) = (build / "python/sonde").glob("_sonde*.so")
    assert extension.name == "_sonde.abi3.so"
    nm = subprocess.run(["nm", "-D", "-u", extension], stdout=subprocess.PIPE, check=True)
    private = set(re.findall(r"\b_Py\w+", nm.stdout.decode()))
    assert private <= STABLE, private - STABLE


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))


# --- interpreters without a GIL ---


@pytest.mark.parametrize("python", free_threaded())
def test_a_free_threaded_interpreter_is_told(hurt, python):
    """It would load the extensions, and crash: they say what is the matter, and the rest works."""
    code = """
import sys, msmemscope, putils, msmonitor, sonde
for name in ("_sonde", "_monitor"):
    try:
        __import__("sonde." + name)
        print("loaded")
    except ImportError as e:
        assert "free-threaded" in str(e), e
sonde.step()
try:
    msmemscope.config()
except RuntimeError as e:
    assert "this CPython is free-threaded" in str(e), e
    print("told", sys._is_gil_enabled())
"""
    env = {"PYTHONPATH": str(hurt.build / "python")}
    r = hurt.plain(python.path, "-c", code, env=env)
    assert (r.returncode, r.stdout) == (0, b"told False\n"), r.stderr


@pytest.mark.parametrize("python", free_threaded())
def test_a_free_threaded_job_is_recorded(hurt, python):
    """By the libraries that are preloaded: its threads do not wait for each other because of us."""
    script = hurt.tmp / "job.py"
    script.write_text(
        """
import sys, threading
kept = []
def keep(n):
    kept.append([bytearray(5000) for _ in range(n)])
threads = [threading.Thread(target=keep, args=(500,)) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print("done", sys._is_gil_enabled())
"""
    )
    opts = ["--device=cpu", "--call-stack=python:5", "--analysis=leaks,decompose", "--format=none"]
    r = hurt.run(python.path, script, opts=[*opts, "--python-objects"])
    assert (r.returncode, r.stdout, r.stderr) == (0, b"done False\n", b"")
    (process,) = hurt.show()["processes"]
    (pool,) = process["pools"]
    (place,) = [x for x in pool["alive_at_end"]["places"] if "keep" in (x["where"] or "")][:1]
    assert place["where"].endswith("(job.py:5)") and place["bytes"] >= 2000 * 5000
