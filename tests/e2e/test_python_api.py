# SPDX-License-Identifier: MulanPSL-2.0
"""The face of the package: its names, their help, what an import costs, what config() accepts."""

import json
import re
import subprocess
import sys

import pytest

from pythons import every_python
from recording import HOOKS

PYTHONS = [p for p in every_python() if not p.values[0] or p.values[0].minor >= 8]
NAMES = (
    "config start stop step take_snapshot TakeSnapshot RecordFunction tracer watcher describe "
    "analyzer list_analyzers get_analyzer_config analyze check_leaks check_inefficient "
    "init_framework_hooks cleanup_framework_hooks enable_npu_sanitizer"
).split()


@pytest.fixture
def run(record):
    """Runs Python code with the package in an empty directory, without the site's own modules."""

    def call(code, *words, python=sys.executable, check=True, **env):
        cwd = record.tmp / "cwd"
        cwd.mkdir(exist_ok=True)
        where = f"import sys; sys.path.insert(0, {str(record.build / 'python')!r})\n"
        r = subprocess.run(
            [str(python), "-E", "-s", "-S", *words, "-c", where + code],
            env=record.env(**env),
            cwd=cwd,
            capture_output=True,
            timeout=60,
        )
        assert not check or r.returncode == 0, r.stderr.decode()
        return r

    return call


# --- names ---


def test_names(run):
    code = """
import msmemscope, re
for name in msmemscope.__all__:
    assert hasattr(msmemscope, name), name
    assert name in dir(msmemscope)
assert re.match(r"\\d+\\.\\d+", msmemscope.__version__)
print(*msmemscope.__all__)
try:
    msmemscope.no_such_name
except AttributeError as why:
    assert "no_such_name" in str(why)
from msmemscope import *
from msmemscope import hijacker
from msmemscope.analyzer import LeaksAnalyzer, LeaksConfig, InefficientAnalyzer, InefficientConfig
from msmemscope.describe import describer
"""
    assert run(code).stdout.decode().split() == NAMES


PUBLIC = """
import inspect, json, types, msmemscope
from msmemscope import analyzer, describe
found = {}
def look(name, what):
    found[name] = [inspect.getdoc(what) or "", None]
    if isinstance(what, types.ModuleType):
        return
    if inspect.isclass(what):
        for key, value in vars(what).items():
            if inspect.isfunction(value) and not key.startswith("_"):
                look(name + "." + key, value)
        what = what.__init__
    if callable(what):
        s = inspect.signature(what)
        kinds = [p.annotation for p in s.parameters.values() if p.name != "self"]
        found[name][1] = inspect.Signature.empty not in kinds + [s.return_annotation]
for name in msmemscope.__all__:
    look(name, getattr(msmemscope, name))
for name in analyzer.__all__:
    look("analyzer." + name, getattr(analyzer, name))
look("describe.describer", describe.describer)
for name in ("start", "stop"):
    look("tracer." + name, getattr(msmemscope.tracer, name))
for name in ("watch", "remove"):
    look("watcher." + name, getattr(msmemscope.watcher, name))
print(json.dumps(found))
"""


def test_each_has_help_with_an_example_and_types(run):
    found = json.loads(run(PUBLIC).stdout)
    assert set(NAMES) <= set(found) and len(found) > 30
    for name, (text, typed) in found.items():
        assert text, f"{name} has no docstring"
        example = ">>>" in text or "    msmemscope." in text or "    with describe." in text
        if not re.search(r"Analyzer\.analyze$", name):
            assert example, f"{name} has no example"
        assert all(len(line) <= 100 for line in text.splitlines()), name
    untyped = sorted(name for name, (text, typed) in found.items() if typed is False)
    assert not untyped, f"without type hints: {untyped}"


def test_help_reads_well(run):
    code = "import msmemscope, pydoc\nprint(pydoc.render_doc(msmemscope, renderer=pydoc.plaintext))"
    text = run(code).stdout.decode()
    for name in NAMES:
        assert re.search(rf"\b{name}\b", text)
    assert "msmemscope.step()" in text and "check_leaks(input_path" in text


# --- what an import costs ---


@pytest.mark.parametrize("python", PYTHONS)
def test_import_costs_nothing(run, python):
    code = """
import os, sys, threading
before = dict(os.environ)
files = set(os.listdir("/proc/self/fd"))
import msmemscope
assert dict(os.environ) == before
assert threading.active_count() == 1 and len(os.listdir("/proc/self/task")) == 1
assert set(os.listdir("/proc/self/fd")) <= files
assert os.listdir(".") == []
assert sys.getprofile() is None and sys.gettrace() is None
heavy = "torch torch_npu numpy inspect dataclasses subprocess json ctypes typing".split()
print([name for name in heavy if name in sys.modules])
"""
    r = run(code, python=python.path)
    assert (r.stdout, r.stderr) == (b"[]\n", b"")


def test_import_time(run):
    """At most a few times what `import json` takes, each the best of some."""
    best = {}
    for _ in range(7):
        for name in ("json", "msmemscope"):
            text = run(f"import {name}", "-X", "importtime").stderr.decode()
            (us,) = re.findall(rf"\|\s+(\d+) \| {name}\n", text)
            best[name] = min(int(us), best.get(name, 1 << 30))
    assert best["msmemscope"] < 4 * best["json"], best


def test_import_after_fork_and_in_threads(run):
    code = """
import os, threading
pid = os.fork()
if pid == 0:
    import msmemscope
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
failed = []
def load():
    try:
        import msmemscope
        msmemscope.list_analyzers, msmemscope.watcher
    except BaseException as why:
        failed.append(why)
threads = [threading.Thread(target=load) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not failed
pid = os.fork()
if pid == 0:
    import msmemscope
    assert msmemscope.list_analyzers() == ["leaks", "inefficient"]
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert os.listdir(".") == []
"""
    assert run(code).stderr == b""


@pytest.mark.parametrize("python", every_python(oldest=8))
def test_import_in_a_subinterpreter(run, python):
    """Where the interpreter allows it, else recording is refused in plain words."""
    code = """
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    try:
        import _interpreters as interpreters
    except ImportError:
        raise SystemExit(0)
text = '''
import sys
sys.path.insert(0, %r)
import msmemscope
assert msmemscope.list_analyzers() == ["leaks", "inefficient"]
''' % sys.path[0]
one = interpreters.create()
error = interpreters.run_string(one, text) if hasattr(interpreters, "run_string") else \\
    interpreters.exec(one, text)
assert error is None, error
interpreters.destroy(one)
import msmemscope
msmemscope.config(events="alloc")
"""
    r = run(code, python=python.path)
    assert r.stderr == b""


@pytest.mark.parametrize("python", PYTHONS)
def test_import_with_the_libraries(record, run, python):
    """LD_PRELOAD as `source msmemscope --load-api-env` has it: nothing happens until start()."""
    lib = record.build / "lib"
    env = {"LD_PRELOAD": ":".join(str(lib / name) for name in HOOKS), "LD_LIBRARY_PATH": lib}
    code = "import msmemscope, os\nprint(os.listdir('.'))"
    r = run(code, python=python.path, **env)
    assert (r.stdout, r.stderr) == (b"[]\n", b"")


# --- config() ---


def refused(run, call):
    """Exception and words of config(…); nothing was applied."""
    code = f"""
import msmemscope
from msmemscope import _control
before = _control.native().settings()
try:
    msmemscope.config({call})
except Exception as why:
    print(type(why).__name__, why, sep=": ")
assert _control.native().settings() == before
"""
    r = run(code)
    assert r.stderr == b""
    return r.stdout.decode().strip()


@pytest.mark.parametrize(
    "call, kind, words",
    [
        ("'npu'", "TypeError", "config() takes no positional arguments"),
        ("{'device': 'npu'}", "TypeError", "config() takes no positional arguments"),
        ("level=0", "TypeError", "Value for argument 'level' must be a string (use quotes)"),
        ("events=None", "TypeError", "Value for argument 'events' must be a string (use quotes)"),
        ("events=['alloc', 3]", "TypeError", "must be a string"),
        ("colour='red'", "ValueError", "There is no 'colour'; expected call_stack, level, events"),
        ("steps='1'", "ValueError", "There is no 'steps'"),
        ("level='2'", "ValueError", "level"),
        ("events='alloc,x'", "ValueError", "alloc"),
        ("device='npu:99'", "ValueError", "npu:0 to npu:31"),
        ("device='tpu'", "ValueError", "cpu"),
        ("call_stack='rust'", "ValueError", "python"),
        ("call_stack='python:x'", "ValueError", "python"),
        ("analysis='luck'", "ValueError", "leaks"),
        ("format='xml'", "ValueError", "csv"),
        ("watch='a,b,c,d'", "ValueError", "watch"),
        ("watch=':out0,b'", "ValueError", "operator"),
        ("events='launch', analysis='luck'", "ValueError", "leaks"),
        ("events='a\\0b'", "ValueError", "NUL"),
    ],
)
def test_config_refuses(run, call, kind, words):
    said = refused(run, call)
    assert said.startswith(kind + ": ") and words in said
    if kind == "ValueError":
        assert said.startswith("ValueError: Set msmemscope trace config failed! ")


def test_config_accepts(run):
    code = """
import msmemscope
from msmemscope import _control
def now(*names):
    s = _control.native().settings()
    return [s[name] for name in names]
msmemscope.config()
before = _control.native().settings()
msmemscope.config()
assert _control.native().settings() == before
msmemscope.config(call_stack="c:10,python:5", level="kernel", device="npu:1,cpu")
assert now("c_depth", "py_depth", "cpu", "npu_all", "npu_slots") == [10, 5, True, False, 2]
msmemscope.config(events="alloc")                       # the rest stays as it is
assert now("c_depth", "py_depth", "cpu", "npu_slots") == [10, 5, True, 2]
assert now("dump_events")[0] & 3 == 3                   # alloc means alloc and free
msmemscope.config(events=["launch", "access"])
assert now("dump_events")[0] & 12 == 12
msmemscope.config(events="alloc，free")             # a comma of full width
assert now("dump_events") == [3]
msmemscope.config(analysis="")
assert now("analysis") == [0]
"""
    assert run(code).stderr == b""


def test_a_place_where_no_files_can_be_made(run):
    code = """
import msmemscope
msmemscope.config(output_path="/proc/nowhere")
msmemscope.start(); msmemscope.step(); msmemscope.stop()
print("went on")
"""
    r = run(code)
    assert r.stdout == b"went on\n"
    assert b"Error: nothing is recorded" in r.stderr and b"/proc/nowhere" in r.stderr


def test_what_can_be_set_once(run):
    code = """
import msmemscope, os
from msmemscope import _control
msmemscope.config(format="db", output_path="here", watch="aten.a,aten.b,full-content")
s = _control.native().settings()
assert (s["format"], s["watch"]) == ("db", True) and s["output_path"] == os.path.abspath("here")
msmemscope.config(format="csv", output_path="there", level="kernel")
assert _control.native().settings()["format"] == "db"
assert _control.native().settings()["output_path"] == os.path.abspath("here")
assert os.listdir(".") == []                            # nothing before start()
"""
    said = run(code).stderr.decode().splitlines()
    assert len(said) == 1
    assert 'Warn: Config:"format","output_path","watch" can only be set once. ' in said[0]


def test_old_names(run):
    code = """
import msmemscope
from msmemscope import _control
msmemscope.config(data_format="db", output="here")
s = _control.native().settings()
assert s["format"] == "db" and s["output_path"].endswith("/here")
from msmemscope import _msmemscope as old
assert old.start is msmemscope.start and old.config is msmemscope.config
assert old._watcher is msmemscope.watcher and old._tracer is msmemscope.tracer
assert old._report_cpu_tensor(4096, 100, True) is False         # nothing records yet
old.start()
assert old._report_cpu_tensor(4096, 100, True) is True
assert old._report_cpu_tensor(4096, 100, False, "stack") is True
old._describer.describe("mine"); old._describer.undescribe("mine")
old._describer.describe_addr(4096, "mine")
old._describer.describe_addr(4096, [("mine", 5), (3, "detail")])    # of either version
old._describer.describe_label("part", 1); old._describer.undescribe_label("part", 1)
for wrong in ("mine", [("mine",)], [(1, 2)], [("mine", 8)], ["mi"]):
    try:
        old._describer.describe_addr(4096 if wrong != "mine" else -1, wrong)
        assert 0, wrong
    except (TypeError, ValueError):
        pass
old._take_snapshot({"device": 0, "name": "old", "memory_reserved": 10, "total": 100, "free": 1})
old.step()
old.stop()
for wrong in (3, None):
    try:
        old._take_snapshot(wrong)
        assert 0
    except TypeError:
        pass
"""
    said = run(code).stderr.decode()
    assert "data_format" not in said and "old name" not in said


# --- what is missing ---


def test_what_is_missing_is_said_once(record, run):
    code = """
import ctypes, msmemscope
ctypes.CDLL(%r)
msmemscope.config(device="npu,cpu")
msmemscope.start(); msmemscope.stop()
msmemscope.start(); msmemscope.stop()
""" % str(record.sim / "libascendcl.so")
    env = {"LD_LIBRARY_PATH": f"{record.sim}:{record.build / 'lib'}"}
    said = run(code, **env).stderr.decode()
    lacks = "device memory of the driver and memory of pools and marks are not recorded"
    assert said.count(lacks) == 1
    assert said.count("`source msmemscope --load-api-env`") == 1
    assert said.count("nothing of host memory is recorded") == 1
    # With the libraries there is nothing to say about the device.
    lib = record.build / "lib"
    env["LD_PRELOAD"] = ":".join(str(lib / name) for name in HOOKS)
    assert "driver" not in run(code, **env).stderr.decode()


def test_nothing_is_missing_where_nothing_is_asked(run):
    code = "import msmemscope as m\nm.config(events='none')\nm.start(); m.stop()"
    first, where, last = run(code).stderr.decode().splitlines()
    assert first == "[msmemscope] Info: Start tracing."
    assert where.startswith("[msmemscope] Info: recording into /")
    assert last == "[msmemscope] Info: Stop tracing."


# --- the sanitizer ---


def test_the_sanitizer_needs_torch_npu(run):
    r = run("import msmemscope\nmsmemscope.enable_npu_sanitizer()", check=False)
    assert r.returncode == 1
    assert b"ImportError: enable_npu_sanitizer() needs torch_npu" in r.stderr


STAND_IN = '''
"""torch_npu's sanitizer has the shape of torch.cuda's; this one only notes what it is told."""
import json
class Error:
    def __init__(self, text): self.text = text
    def __str__(self): return self.text
class CUDASanitizerErrors(Exception):
    def __init__(self, errors): self.errors = errors
    def __str__(self): return "%d data races" % len(self.errors)
class Handler:
    def _handle_kernel_launch(self, stream, read_only, read_write, outputs, operator, aliases):
        print(json.dumps([stream, sorted(read_only), sorted(read_write), sorted(outputs), operator,
                          {str(k): v for k, v in sorted(aliases.items())}]), flush=True)
        return [Error("race in " + operator)] if operator == "bad" else []
class Sanitizer: event_handler = Handler()
npu_sanitizer = None
def enable_npu_sanitizer():
    global npu_sanitizer
    npu_sanitizer = Sanitizer()
'''


@pytest.fixture
def sanitized(record, run):
    """Code with a stand-in for torch_npu, and marks that come through the real mstx hook."""
    package = record.tmp / "fake/torch_npu/npu"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "_sanitizer.py").write_text(STAND_IN)
    lib = record.build / "lib"
    env = {
        "LD_PRELOAD": str(lib / "libascend_mstx_hook.so"),
        "LD_LIBRARY_PATH": f"{record.sim}:{lib}",
    }
    head = f"""
import ctypes, threading, time
sys.path.insert(0, {str(record.tmp / 'fake')!r})
import msmemscope
mstx = ctypes.CDLL("libms_tools_ext.so")
mark = lambda text, stream=7: mstx.mstxMarkA(text.encode(), ctypes.c_void_p(stream))
msmemscope.enable_npu_sanitizer()
"""
    return lambda code, **kw: run(head + code, **dict(env, **kw))


def test_marks_reach_the_sanitizer(sanitized):
    code = """
mark("sanitizer-op: name=add;read=a:4096:16,b:0x2000:16;write=c:12288:16,a:4096:16")
mark("something else"); mark("sanitizer-op:"); mark("sanitizer-op: name=odd;read=x:y:z,::,q;write=")
t = threading.Thread(target=mark, args=("sanitizer-op: name=other;read=" + "n" * 40 + ":16:1", 9))
t.start(); t.join()
"""
    r = sanitized(code)
    assert r.stderr == b""
    assert [json.loads(line) for line in r.stdout.splitlines()] == [
        [7, [8192], [4096, 12288], [], "add", {"4096": ["a"], "8192": ["b"], "12288": ["c"]}],
        [7, [], [], [], "", {}],
        [7, [], [], [], "odd", {}],
        [9, [16], [], [], "other", {"16": ["n" * 31]}],
    ]


def test_a_data_race_is_raised(sanitized):
    code = """
from torch_npu.npu._sanitizer import CUDASanitizerErrors
for where in ("main", "thread"):
    try:
        if where == "main":
            mark("sanitizer-op: name=bad;read=a:4096:16")
        else:
            threading.Thread(target=mark, args=("sanitizer-op: name=bad;write=a:4096:16",)).start()
        for _ in range(1000):
            time.sleep(0.01)
        print("nothing came")
    except CUDASanitizerErrors as why:
        print("raised", why)
held = ctypes.PyDLL("libms_tools_ext.so")       # the GIL is held meanwhile
try:
    held.mstxMarkA(b"sanitizer-op: name=bad;read=a:4096:16", None)
    for _ in range(100): pass
except CUDASanitizerErrors as why:
    print("raised", why)
"""
    r = sanitized(code)
    assert r.stdout.count(b"raised 1 data races") == 3
    assert r.stderr == b"race in bad\n" * 3


def test_a_sanitizer_that_fails_harms_nobody(sanitized):
    code = """
from torch_npu.npu import _sanitizer
_sanitizer.npu_sanitizer.event_handler._handle_kernel_launch = lambda *args: 1 / 0
mark("sanitizer-op: name=bad;read=a:4096:16")
_sanitizer.npu_sanitizer = None
mark("sanitizer-op: name=bad;read=a:4096:16")
print("went on")
def forever():
    while True:
        mark("sanitizer-op: name=x")
for _ in range(4):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.05)
"""
    r = sanitized(code)
    assert r.stdout == b"went on\n" and b"ZeroDivisionError" in r.stderr
