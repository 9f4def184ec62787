# SPDX-License-Identifier: MulanPSL-2.0
"""Python call stacks of memory events: taken inside the job, as the interpreter itself sees them."""

import json
import pathlib
import subprocess

import pytest

from pythons import every_python, one_per_minor

TARGETS = pathlib.Path(__file__).resolve().parents[1] / "targets/python"


def stacks_of(rows, attr="py_stack"):
    return [getattr(r, attr).strip('"').splitlines() for r in rows]


def job(python, build, name="allocates.py"):
    return [python.path, str(TARGETS / name), str(build / "sim")]


def read(record, python, build, *opts):
    r = record(*job(python, build), opts=opts)
    assert r.returncode == 0, r.stderr
    return r, json.loads(r.stdout)


@pytest.mark.parametrize("python", every_python())
def test_the_interpreters_own_view(record, build, python):
    r, told = read(record, python, build, "--call-stack=python:100")
    rows = sorted(r.of("MALLOC", type="HAL"), key=lambda x: int(x.time))
    assert len(told) == 12 and stacks_of(rows) == told
    assert len(told[4]) > 20 and any("训练" in place for place in told[3])


@pytest.mark.parametrize("python", one_per_minor(oldest=12, newest=12))
@pytest.mark.parametrize("form", ["csv", "db"])
def test_depth_and_both_kinds(record, build, python, form):
    r, told = read(record, python, build, "--call-stack=python:3,c:5", f"--format={form}")
    rows = sorted(r.of("MALLOC", type="HAL"), key=lambda x: int(x.time))
    assert stacks_of(rows) == [places[:3] for places in told]
    assert all(0 < len(native) <= 8 for native in stacks_of(rows, "c_stack")), "inlined ones count"


@pytest.mark.parametrize("python", one_per_minor())
def test_host_memory_of_a_busy_interpreter(hurt, build, python):
    """Threads, coroutines, fork, exec, the collector and the end of the interpreter itself."""
    words = [python.path, "-W", "ignore", str(TARGETS / "busy.py")]
    plain = hurt.plain(*words)
    r = hurt.run(*words, opts=["--device=npu,cpu", "--call-stack=python:10"])
    assert (r.returncode, r.stdout) == (plain.returncode, plain.stdout), r.stderr
    hurt.session.wait_finished()
    assert hurt.lost == 0


def test_no_python_no_stack(record, build):
    r = record(build / "sim/simtrain", "--steps=2", opts=["--call-stack=python:10"])
    assert r.returncode == 0
    assert {tuple(s) for s in stacks_of(r.rows)} == {()}


# What a switch of greenlets does: the C stack between two functions becomes something else, memory
# is freed, and only then does the interpreter learn that it is elsewhere.
SWITCH = r"""
#include <stdlib.h>
#include <string.h>

static char *outer_frame;

int outer(int (*callback)(void))
{
    outer_frame = __builtin_frame_address(0);
    return callback() + 1;
}

__attribute__((noinline)) int switch_stacks(unsigned long word)
{
    char *from = (char *)__builtin_frame_address(0) + 16;
    size_t n = (size_t)(outer_frame - from) / 8 * 8;
    char *saved = malloc(n);
    void *freed = malloc(5000);

    memcpy(saved, from, n);
    for (size_t i = 0; i < n; i += 8)
        memcpy(from + i, &word, 8);
    free(freed);
    memcpy(from, saved, n);
    free(saved);
    return 1;
}
"""

SWITCHING = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
lib.switch_stacks.argtypes = [ctypes.c_ulong]

def called_back():
    # nothing, no address, one of the kernel's, an object, a place in the code, a frame of old
    words = [0, 1, 2**32 - 1, 2**64 - 1, id(None), id(called_back.__code__), id(sys._getframe())]
    return sum(lib.switch_stacks(word) for word in words)

print(lib.outer(ctypes.CFUNCTYPE(ctypes.c_int)(called_back)))
"""


@pytest.mark.parametrize("python", one_per_minor())
def test_stacks_are_switched(hurt, tmp_path, python):
    """Interpreters from 3.11 on keep some of what leads to the frames on the C stack."""
    library = tmp_path / "switch.so"
    (tmp_path / "switch.c").write_text(SWITCH)
    (tmp_path / "switching.py").write_text(SWITCHING)
    subprocess.run(
        ["cc", "-O0", "-fno-builtin", "-fno-stack-protector", "-fPIC", "-shared"]
        + [str(tmp_path / "switch.c"), "-o", str(library)],
        check=True,
    )
    words = [python.path, str(tmp_path / "switching.py"), str(library)]
    plain = hurt.plain(*words)
    assert (plain.returncode, plain.stdout) == (0, b"8\n"), plain.stderr
    r = hurt.run(*words, opts=["--device=npu,cpu", "--call-stack=python:10"])
    assert (r.returncode, r.stdout) == (0, plain.stdout), r.stderr
