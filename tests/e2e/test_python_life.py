# SPDX-License-Identifier: MulanPSL-2.0
"""Windows of recording by the thousand, threads, processes, interpreters: nothing is lost, nothing
leaks, nothing hangs, and the job does not notice."""

import json
import os
import subprocess

import pytest
from capabilities import lacks
from python_jobs import PRELUDE, Left
from pythons import one_per_minor, pythons

PER_MINOR = one_per_minor(oldest=8)
NEWEST = [p for p in pythons() if p.minor >= 8][-1]
ENDS = [PER_MINOR[0], PER_MINOR[-1]]


# --- windows ---

CYCLES = """
import json

def state():
    words = open("/proc/self/status").read().split()
    return {
        "anon_kb": int(words[words.index("RssAnon:") + 1]),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": int(words[words.index("Threads:") + 1]),
        "maps": open("/proc/self/maps").read().count("\\n"),
    }

N, first, begin = int(sys.argv[1]), None, time.time()
for i in range(N):
    msmemscope.start()
    address = take(1000 + i)
    if i % 3 == 0:
        msmemscope.step()
    if i % 50 == 0:
        msmemscope.config(call_stack="python:%d" % (1 + i // 50))
    msmemscope.stop()
    give(address)
    if i == N // 10:
        first = state()
last = state()
print(json.dumps([first, last, (time.time() - begin) / N]))
"""


@pytest.mark.parametrize("python", PER_MINOR)
def test_a_thousand_windows(jobs, python):
    left = jobs.run(python, CYCLES, 1000, timeout=110)
    assert left.returncode == 0, left
    first, last, seconds = json.loads(left.stdout)
    print(f"{python.label}: {seconds * 1e6:.0f} us per window")
    assert last["files"] == first["files"] and last["threads"] == first["threads"], (first, last)
    assert last["maps"] <= first["maps"] + 8, (first, last)
    assert last["anon_kb"] <= first["anon_kb"] + 1024, (first, last)
    (process,) = left.processes
    assert left.sizes() == list(range(1000, 2000))
    kinds = [r.type for r in process.rows if r.event == "SYSTEM"]
    assert kinds.count("START_TRACE") == kinds.count("STOP_TRACE") == 1000
    steps = [r.name for r in process.rows if r.type == "STEP"]
    assert steps == [str(i + 1) for i in range(334)]
    assert left.stderr.count("Start tracing.") == left.stderr.count("Stop tracing.") == 1000


def test_threads_start_and_stop_at_once(jobs):
    """Who starts what is started already changes nothing; the rows alternate."""
    code = """
import threading
go = threading.Barrier(6)

def work(n):
    go.wait()
    for i in range(40):
        if n < 4:
            msmemscope.start()
            give(take(n * 1000 + i))
            msmemscope.config(call_stack="python:%d" % (1 + i % 5))
            msmemscope.stop()
        else:
            give(take(9))
            msmemscope.step()
            time.sleep(0.001)

threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
msmemscope.start()
take(77777)
msmemscope.stop()
print("done")
"""
    left = jobs.run(NEWEST, code)
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    kinds = [r.type for r in left.of("SYSTEM") if r.type != "STEP"]
    assert kinds == ["START_TRACE", "STOP_TRACE"] * (len(kinds) // 2), kinds
    sizes = left.sizes()
    assert sizes[-1] == 77777 and sizes.count(77777) == 1
    assert all(sizes.count(s) == 1 for s in set(sizes) - {9})


def test_start_again_and_stop_again(jobs):
    code = """
msmemscope.stop(); msmemscope.stop()
msmemscope.start(); msmemscope.start()
take(1)
msmemscope.stop(); msmemscope.stop()
take(2)
"""
    left = jobs.run(NEWEST, code)
    assert left.returncode == 0 and left.sizes() == [1], left
    assert [r.type for r in left.of("SYSTEM")] == ["START_TRACE", "STOP_TRACE"]


def test_exceptions_and_generators_in_a_window(jobs):
    """A window is not tied to a frame: whatever leaves it, however, it stays as it was."""
    code = """
def batches():
    try:
        for i in range(3):
            msmemscope.start()
            take(10 + i)
            yield i
            msmemscope.stop()
    finally:
        msmemscope.stop()

for i in batches():
    try:
        take(20 + i)
        raise KeyError(i)
    except KeyError:
        take(30 + i)
for i in batches():
    break
del i
try:
    msmemscope.start()
    take(40)
    raise MemoryError
except MemoryError:
    take(41)
finally:
    msmemscope.stop()
take(99)
"""
    left = jobs.run(NEWEST, code)
    assert left.returncode == 0, left
    assert left.sizes() == [10, 20, 30, 11, 21, 31, 12, 22, 32, 10, 40, 41]


# --- processes ---

FORKED = """
import multiprocessing, concurrent.futures, subprocess

def child(n):
    take(1000 + n)
    return os.getpid()

if __name__ == "__main__":
    method = sys.argv[1]
    msmemscope.start()
    take(1)
    if method == "os.fork":
        for n in range(4):
            pid = os.fork()
            if pid == 0:
                child(n)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
    elif method == "executor":
        context = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            list(pool.map(child, range(4)))
    else:
        context = multiprocessing.get_context(method)
        workers = [context.Process(target=child, args=(n,)) for n in range(4)]
        [w.start() for w in workers]
        [w.join() for w in workers]
        assert all(w.exitcode == 0 for w in workers), [w.exitcode for w in workers]
    take(2)
    msmemscope.stop()
    print("done")
"""


@pytest.mark.parametrize("python", ENDS)
@pytest.mark.parametrize("way", ["no preload", "recipe", "deferred", "immediate"])
@pytest.mark.parametrize("method", ["os.fork", "fork", "spawn", "forkserver", "executor"])
def test_children_of_python(jobs, python, method, way):
    left = jobs.run(
        python,
        FORKED,
        method,
        options=["-W", "ignore"],
        env=jobs.recipe() if way == "recipe" else {},
        cli={"deferred": ["--collect-mode=deferred"], "immediate": []}.get(way),
    )
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    sizes = left.sizes()
    # A forked child goes on where its parent was; one that starts anew calls start() itself,
    # unless the command records everything.
    inherits = way == "immediate" or method in ("os.fork", "fork", "executor")
    assert sorted(sizes) == [1, 2] + [1000 + n for n in range(4)] * inherits


def test_spawned_child_records_by_itself(jobs):
    """It joins its parent's recording, and its own start() is its own."""
    code = """
import multiprocessing
def child(n):
    take(5)
    msmemscope.start()
    take(1000 + n)
    msmemscope.stop()
    take(6)
if __name__ == "__main__":
    msmemscope.start()
    take(1)
    w = multiprocessing.get_context("spawn").Process(target=child, args=(7,))
    w.start(); w.join()
    assert w.exitcode == 0
    msmemscope.stop()
"""
    left = jobs.run(NEWEST, code)
    assert left.returncode == 0, left
    assert sorted(left.sizes()) == [1, 1007]
    assert len(left.recordings) == 1 and len(left.processes) == 2


def test_fork_while_another_thread_is_in_stop(jobs):
    """The locks that it holds are nobody's in the child."""
    code = """
import threading
ending = False
msmemscope.config(analysis="leaks,decompose", events="alloc,free,launch,access,traceback")

def windows():
    while not ending:
        msmemscope.start()
        msmemscope.stop()

thread = threading.Thread(target=windows)
thread.start()
for n in range(60):
    pid = os.fork()
    if pid == 0:
        msmemscope.start()
        take(1000 + n)
        msmemscope.config(call_stack="python:3")
        msmemscope.stop()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
ending = True
thread.join()
print("done")
"""
    left = jobs.run(NEWEST, code, options=["-W", "ignore"])
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    assert sorted(s for s in left.sizes() if s >= 1000) == list(range(1000, 1060))


def test_imported_before_the_fork_started_after_it(jobs):
    """Workers that record while their parent does not: each is the first of its own recording, and
    its files are complete when it has ended."""
    code = """
import glob
os.makedirs("else"); os.chdir("else")  # where they are when they start, not where they were
for n in range(3):
    pid = os.fork()
    if pid == 0:
        msmemscope.start()
        take(1000 + n)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    (dump,) = glob.glob("memscopeDumpResults/msmemscope_%d_*/device_0/dump/*.csv" % pid)
    assert "size:%d," % (1000 + n) in open(dump).read()
print("done")
"""
    left = jobs.run(NEWEST, code, options=["-W", "ignore"])
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    moved = Left(left.out.parent / "else/memscopeDumpResults", left.result)
    assert sorted(moved.sizes()) == [1000, 1001, 1002] and len(moved.recordings) == 3
    assert not left.out.exists()


@pytest.mark.parametrize("way", ["no preload", "recipe"])
def test_children_follow_where_the_program_moved_it(jobs, way):
    code = """
import subprocess
if len(sys.argv) == 1:
    msmemscope.config(output_path=os.path.abspath("elsewhere"))
    msmemscope.start()
    take(1)
    subprocess.run([sys.executable, sys.argv[0], "child"], check=True)
    pid = os.fork()
    if pid == 0:
        msmemscope.start()
        take(3)
        msmemscope.stop()
        os._exit(0)
    os.waitpid(pid, 0)
    msmemscope.stop()
else:
    msmemscope.start()
    take(2)
    msmemscope.stop()
"""
    left = jobs.run(NEWEST, code, env=jobs.recipe() if way == "recipe" else {})
    assert left.returncode == 0, left
    moved = Left(left.out.parent / "elsewhere", left.result)
    assert sorted(moved.sizes() + left.sizes()) == [1, 2, 3]
    assert len(moved.recordings) == 1 and not left.recordings


def test_nothing_before_start(jobs):
    """Labels, marks and blocks of a program that has not called start() leave no trace."""
    code = """
take(1)
_sonde.label_push(1, "x")
_sonde.label_pop("x")
_sonde.mark("x")
msmemscope.config(call_stack="python:3")
assert os.listdir(".") == ["job.py"] and "SONDE_SESSION" not in os.environ
msmemscope.start()
take(2)
"""
    left = jobs.run(NEWEST, code)
    assert left.returncode == 0 and left.sizes() == [2], left


@pytest.mark.parametrize("environment", ["kept", "emptied"])
def test_subprocess_that_records(jobs, environment):
    code = """
import subprocess
if len(sys.argv) == 2:
    msmemscope.start()
    take(1)
    env = None
    if sys.argv[1] == "emptied":
        env = {"PYTHONPATH": os.environ["PYTHONPATH"], "SIM_NPU_STATE": os.environ["SIM_NPU_STATE"]}
    subprocess.run([sys.executable, sys.argv[0], "the", "child"], check=True, env=env)
    msmemscope.stop()
else:
    msmemscope.start()
    take(2)
    msmemscope.stop()
"""
    left = jobs.run(NEWEST, code, environment)
    assert left.returncode == 0, left
    assert sorted(left.sizes()) == [1, 2]
    # One that does not know of its parent's recording makes its own.
    assert len(left.recordings) == (1 if environment == "kept" else 2)


def test_program_that_is_no_python(jobs):
    """A child that never had us: nothing in its environment makes it differ."""
    code = """
import subprocess
msmemscope.start()
take(1)
out = subprocess.run(["sh", "-c", "echo $LD_PRELOAD; ls /proc/self/fd | wc -l"],
                     stdout=subprocess.PIPE, check=True).stdout.split()
assert len(out) == 1, out
msmemscope.stop()
print("done")
"""
    left = jobs.run(NEWEST, code)
    assert (left.returncode, left.stdout) == (0, "done\n"), left


# --- interpreters inside interpreters ---


@pytest.mark.parametrize("python", one_per_minor(oldest=8))
def test_subinterpreters(jobs, python):
    """The extension belongs to the main one: another gets an error or works, and nothing breaks."""
    code = """
import importlib
for name in ("_interpreters", "_xxsubinterpreters"):
    try:
        sub = importlib.import_module(name)
        break
    except ImportError:
        sub = None
msmemscope.start()
take(1)
if sub:
    for i in range(3):
        other = sub.create()
        try:
            sub.run_string(other, '''
try:
    import msmemscope
    msmemscope.start()
    msmemscope.step()
    msmemscope.stop()
except (ImportError, RuntimeError) as e:
    pass
''')
        finally:
            sub.destroy(other)
msmemscope.start()
take(2)
msmemscope.stop()
print("done")
"""
    left = jobs.run(python, code, options=["-W", "ignore"])
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    assert left.sizes() == [1, 2]


EMBEDDED = r"""
#include <stdio.h>
#include <dlfcn.h>

int main(int argc, char **argv)
{
    void (*begin)(void), (*end)(void);
    int (*run)(const char *);

    *(void **)&begin = dlsym(RTLD_DEFAULT, "Py_Initialize");
    *(void **)&end = dlsym(RTLD_DEFAULT, "Py_FinalizeEx");
    *(void **)&run = dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
    if (!begin || !end || !run)
        return 3;
    for (int i = 0; i < 2; i++) {
        begin();
        if (run(argv[1]))
            return 4;
        end();
    }
    puts("done");
    return 0;
}
"""


def shared_python():
    """An interpreter with a library to link with, and how."""
    for python in reversed(pythons()):
        if python.minor < 8:
            continue
        ask = "import sysconfig as s; print(*map(s.get_config_var, ('LIBDIR', 'LDLIBRARY')))"
        r = subprocess.run([python.path, "-c", ask], stdout=subprocess.PIPE)
        where = r.stdout.decode().split()
        if len(where) == 2 and ".so" in where[1]:
            library = os.path.join(*where)
            if os.path.exists(library) or os.path.exists(library + ".1.0"):
                return python, library if os.path.exists(library) else library + ".1.0"
    return None, None


def test_embedded_interpreter_twice(jobs):
    python, library = shared_python()
    if not python:
        lacks("python-shared", "no interpreter here has a libpython")
    (jobs.tmp / "embedded.c").write_text(EMBEDDED)
    program = jobs.tmp / "embedded"
    subprocess.run(
        ["cc", str(jobs.tmp / "embedded.c"), "-o", str(program), "-Wl,--no-as-needed", library]
        + [f"-Wl,-rpath,{os.path.dirname(library)}", "-ldl"],
        check=True,
    )
    code = PRELUDE + "msmemscope.start()\ntake(5)\nmsmemscope.stop()\nmsmemscope.start()\ntake(6)"
    place = jobs.place()
    r = subprocess.run(
        [str(program), code],
        cwd=place,
        env=jobs.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    left = Left(place / "memscopeDumpResults", r)
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    assert left.sizes() == [5, 6] * 2
