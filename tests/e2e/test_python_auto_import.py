# SPDX-License-Identifier: MulanPSL-2.0
"""A job that does not import msmemscope: the package is imported when it is needed."""

import pytest

from pythons import every_python, one_per_minor

# Allocates until the package is there, or for as long as it would take.
LOOK = """
import json, sys, threading
before = list(sys.path)
kept = []
for i in range(60000):
    kept.append(bytearray(600))
    if "msmemscope" in sys.modules:
        break
    if len(kept) > 5000:
        kept.clear()
print("msmemscope" in sys.modules, sys.path == before, "torch" in sys.modules,
      len(threading.enumerate()))
"""
# Every allocation is in the dump and is checked there: where it must not come, some will do.
LOOK_SHORTLY = LOOK.replace("60000", "6000")


def run(record, python, *opts, code=LOOK, **env):
    r = record(python.path, "-c", code, opts=["--device=cpu", *opts], env=env)
    assert r.returncode == 0, r.stderr
    return r


@pytest.mark.parametrize("python", every_python(oldest=8, extensions=False))
def test_it_comes_when_owners_are_asked_for(record, python):
    r = run(record, python, "--analysis=decompose")
    assert r.stdout.split() == [b"True", b"True", b"False", b"1"], r.stdout + r.stderr
    assert r.stderr == b""


@pytest.mark.parametrize("python", one_per_minor(oldest=11, newest=11))
@pytest.mark.parametrize("opts", [[], ["--analysis=leaks"], ["--events=alloc"]])
def test_it_does_not_come_otherwise(record, python, opts):
    assert run(record, python, *opts, code=LOOK_SHORTLY).stdout.split()[0] == b"False"


@pytest.mark.parametrize("python", one_per_minor(oldest=11, newest=11))
def test_it_can_be_kept_out(record, python):
    r = run(record, python, "--analysis=decompose", code=LOOK_SHORTLY, SONDE_PYTHON="off")
    assert r.stdout.split()[0] == b"False"


@pytest.mark.parametrize("python", one_per_minor(oldest=7, newest=7))
def test_an_interpreter_that_is_too_old_is_left_alone(record, python):
    r = run(record, python, "--analysis=decompose", code=LOOK_SHORTLY)
    assert r.stdout.split()[0] == b"False" and r.stderr == b""


@pytest.mark.parametrize("python", one_per_minor(oldest=8, extensions=False))
@pytest.mark.parametrize("events", ["traceback", "access"])
def test_there_is_no_event_to_come_with(hurt, python, events):
    """No NPU, host memory not asked for: nothing of ours is ever called."""
    code = "import sys, time; time.sleep(0.2); sum(range(9)); print('msmemscope' in sys.modules)"
    r = hurt.run(python.path, "-c", code, opts=[f"--events={events}"])
    assert r.stdout == b"True\n", r.stderr


@pytest.mark.parametrize("python", one_per_minor(oldest=8, extensions=False))
def test_a_small_job_that_is_busy_importing(record, python):
    """Modules that the package needs are half there at the first try."""
    code = """
import threading, functools, weakref, sys, time
end = time.monotonic() + 5
while "msmemscope" not in sys.modules and time.monotonic() < end:
    kept = [bytearray(2000) for i in range(10)]
    time.sleep(0.001)
print("msmemscope" in sys.modules)
"""
    r = run(record, python, "--events=alloc,traceback", "--device=npu,cpu", code=code)
    assert r.stdout == b"True\n"


@pytest.mark.parametrize("python", one_per_minor(oldest=8, extensions=False))
def test_not_while_an_import_takes_its_lock(record, python):
    """Up to 3.11 the import that was interrupted there would fail."""
    code = """
import sys, time
def wait(seconds):
    end = time.monotonic() + seconds
    while "msmemscope" not in sys.modules and time.monotonic() < end:
        kept = [bytearray(2000) for i in range(10)]
        time.sleep(0.001)
    return "msmemscope" in sys.modules
there = {"wait": wait}
text = "def acquire(): return wait(0) == wait(0.2)\\nsame = acquire()"
exec(compile(text, "<frozen importlib._bootstrap>", "exec"), there)
print(there["same"], wait(5))
"""
    r = run(record, python, "--events=alloc,traceback", "--device=npu,cpu", code=code)
    assert r.stdout == b"True True\n"


# Modules that msmemscope imports, too, and that are looked for for a while; then each must be the one that
# its submodule belongs to, and that everybody has.
SEARCH = """
import sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        until = time.monotonic() + 0.15
        while name in wanted and time.monotonic() < until:
            time.sleep(0.01)

wanted = [n for n in ("collections", "typing", "weakref", "functools", "threading", "importlib",
                      "concurrent", "json", "logging") if n not in sys.modules]
sys.meta_path.insert(0, Slow())
modules = {name: __import__(name) for name in wanted}
import collections.abc, concurrent.futures, importlib.machinery, json.decoder, logging.handlers
assert collections.abc and importlib.machinery and concurrent.futures and json.decoder and logging.handlers
assert all(sys.modules[name] is module for name, module in modules.items())
for _ in range(1000):
    if "msmemscope" in sys.modules:
        break
    time.sleep(0.01)
print("msmemscope" in sys.modules)
"""


@pytest.mark.parametrize("python", one_per_minor(oldest=8, extensions=False))
def test_not_while_a_module_is_searched_for(record, python):
    """It would be there twice, and the program's have nothing of what was imported below the other."""
    r = run(record, python, "--analysis=decompose", code=SEARCH)
    assert r.stdout == b"True\n" and r.stderr == b"", r.stderr


@pytest.mark.parametrize("python", one_per_minor(oldest=9, newest=9))
def test_a_module_is_searched_for_for_long(record, python):
    """As on a slow file system: the tries do not run out, and cost little."""
    code = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        until = time.monotonic() + 7
        while name == "json" and time.monotonic() < until:
            time.sleep(0.001)
sys.meta_path.insert(0, Slow())
import json
for _ in range(1000):
    if "msmemscope" in sys.modules:
        break
    time.sleep(0.01)
print("msmemscope" in sys.modules)
"""
    r = run(record, python, "--analysis=decompose", code=code)
    assert r.stdout == b"True\n"


@pytest.mark.parametrize("python", one_per_minor(oldest=8, extensions=False))
def test_the_job_is_the_same(record, python):
    """Exceptions, exit status, output, a half-finished import: as without us."""
    code = """
import sys
kept = [bytearray(600) for i in range(2000)]
import asyncio, unittest, http.client, xml.dom.minidom, concurrent.futures
print(sum(map(len, kept)))
raise SystemExit(7)
"""
    r = record(python.path, "-c", code, opts=["--device=cpu", "--analysis=decompose"])
    assert (r.returncode, r.stdout, r.stderr) == (7, b"1200000\n", b"")
