# SPDX-License-Identifier: MulanPSL-2.0
"""The interpreter is found in whatever process holds it, and where it is not, words say why."""

import functools
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
import pythons
from capabilities import lacks, needs
from pythons import every_python, one_per_minor
from users import as_user

PARK = """
import time
def inner():
    print("up", flush=True); time.sleep(100)  # one line: it may be seen at either
def outer():
    inner()
outer()
"""
FRAMES = [("inner", 4), ("outer", 6), ("<module>", 7)]

is_root = pytest.mark.needs("root")


class Places:
    """Starts processes, looks at them; all are gone at the end."""

    def __init__(self, build, tmp):
        self.build, self.tmp, self.started = build, tmp, []
        (tmp / "park.py").write_text(PARK)

    def start(self, *command, wait=True, env=None, **more):
        p = subprocess.Popen(
            [str(c) for c in command],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **{k: str(v) for k, v in (env or {}).items()}},
            start_new_session=True,
            **more,
        )
        self.started.append(p)
        if wait:
            assert p.stdout.readline() == b"up\n", command
        return p

    def park(self, *python, **more):
        return self.start(*python, self.tmp / "park.py", **more)

    def look(self, pid, before=()):
        """What sonde snap says of one process: its entry, and the frames of its main thread."""
        command = [*before, self.build / "bin/sonde", "snap", "--json", "--top=0", "-p", pid]
        done = subprocess.run(
            [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60
        )
        if not done.stdout:
            return {"error": done.stderr.decode()}, []
        report = json.loads(done.stdout)
        frames = [[(f["name"], f["line"]) for f in g["frames"]] for g in report["groups"]]
        return report["processes"][0], frames[0] if frames else []

    def check(self, pid, version=None):
        entry, frames = self.look(pid)
        deadline = time.monotonic() + 30
        # what it says may be read before it goes to sleep
        while entry["error"] is None and frames != FRAMES and time.monotonic() < deadline:
            entry, frames = self.look(pid)
        assert entry["error"] is None
        assert frames == FRAMES
        if version:
            assert entry["python"].startswith(version), entry["python"]

    def error(self, pid, before=()):
        return self.look(pid, before)[0]["error"]

    def close(self):
        for p in self.started:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.wait()
            p.stdout.close()


@pytest.fixture
def places(build, tmp_path):
    p = Places(build, tmp_path)
    yield p
    p.close()


# --- binaries that were changed ---


@functools.lru_cache(maxsize=None)
def library(python):
    """The libpython of an interpreter; None if it is linked into the program."""
    maps = subprocess.run(
        [python.path, "-c", "print(open('/proc/self/maps').read())"], stdout=subprocess.PIPE
    ).stdout.decode()
    found = {l.split(maxsplit=5)[5] for l in maps.splitlines() if "/libpython3" in l}
    return pathlib.Path(found.pop()) if found else None


@functools.lru_cache(maxsize=None)
def prefix(python):
    ask = "import sys; print(sys.base_prefix)"
    done = subprocess.run([python.path, "-c", ask], stdout=subprocess.PIPE)
    return done.stdout.decode().strip()


def hide(path):
    """Renames the exported _PyRuntime to a name of the same hash: the binary still works."""
    data = path.read_bytes()
    assert b"\0_PyRuntime\0" in data
    # the exported names come before the others in the file
    path.write_bytes(data.replace(b"\0_PyRuntime\0", b"\0_QXRuntime\0", 1))


def strip(path):
    subprocess.run(["strip", "-s", str(path)], check=True)


def drop_sections(path):
    data = bytearray(path.read_bytes())
    data[0x28:0x30] = bytes(8)
    data[0x3C:0x40] = bytes(4)
    path.write_bytes(data)


def copy(places, python, changes=()):
    """A copy of the interpreter, changed: the command line and the environment to run it."""
    folder = places.tmp / "copy"
    folder.mkdir(exist_ok=True)
    program = folder / "program"
    shutil.copy(python.path, program)
    binary, env = program, {"PYTHONHOME": prefix(python)}
    lib = library(python)
    if lib:
        binary = folder / lib.name
        shutil.copy(lib, binary)
        env["LD_LIBRARY_PATH"] = folder
    binary.chmod(0o755)
    for change in changes:
        change(binary)
    return program, env


@pytest.mark.parametrize("python", every_python())
def test_every_interpreter(places, python):
    p = places.park(python.path)
    places.check(p.pid, python.label.rstrip("t+"))


def own_pythons():
    """Those of this machine: the others' loader takes no other library."""
    return [p for p in one_per_minor() if not p.marks and not pythons.is_fetched(p.values[0])]


@pytest.mark.needs("strip")
@pytest.mark.parametrize("drop", [strip, drop_sections])
@pytest.mark.parametrize("python", own_pythons())
def test_no_symbols_at_all(places, python, drop):
    program, env = copy(places, python, [hide, drop])
    p = places.park(program, env=env)
    places.check(p.pid, python.label.rstrip("t+"))


def machine_python(oldest=7, shared=None):
    """An interpreter of this machine; `shared`: whether it has a libpython."""
    for p in reversed(pythons.pythons()):
        if p.minor >= oldest and not pythons.is_fetched(p):
            if shared is None or bool(library(p)) == shared:
                return p
    return lacks("python-shared" if shared else "python-system", "no such Python here")


@pytest.mark.needs("strip")
@pytest.mark.parametrize("change", [strip, hide])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "static"])
def test_stripped_or_with_hidden_symbols(places, shared, change):
    python = machine_python(shared=shared)
    program, env = copy(places, python, [change])
    p = places.park(program, env=env)
    places.check(p.pid, python.label.rstrip("t+"))


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "static"])
def test_deleted_after_the_start(places, shared):
    python = machine_python(shared=shared)
    program, env = copy(places, python)
    p = places.park(program, env=env)
    shutil.rmtree(places.tmp / "copy")
    places.check(p.pid, python.label.rstrip("t+"))


@pytest.mark.needs("strip")
def test_deleted_and_without_symbols(places):
    """What is needed of the file is there for as long as it is mapped."""
    python = machine_python()
    program, env = copy(places, python, [hide, strip])
    p = places.park(program, env=env)
    shutil.rmtree(places.tmp / "copy")
    places.check(p.pid)


def test_virtual_environment_that_is_deleted(places):
    python = machine_python()
    venv = places.tmp / "venv"
    subprocess.run([python.path, "-m", "venv", "--without-pip", venv], check=True)
    p = places.park(venv / "bin/python")
    shutil.rmtree(venv)
    places.check(p.pid)


# --- other ways to start ---


def loader():
    for line in open("/proc/self/maps"):
        path = line.split(maxsplit=5)[5].strip() if "/" in line else ""
        if os.path.basename(path).startswith("ld-linux"):
            return path
    return lacks("python-loader", "no loader of that name")


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "static"])
def test_started_by_the_loader(places, shared):
    """Then /proc/PID/exe is the loader."""
    python = machine_python(shared=shared)
    p = places.park(loader(), python.path)
    places.check(p.pid, python.label.rstrip("t+"))


def test_started_by_the_loader_under_another_name(places):
    program, env = copy(places, machine_python(shared=False))
    p = places.park(loader(), program, env=env)
    places.check(p.pid)


EMBED = r"""
#include <Python.h>
int is_code(PyObject *o);
int is_code(PyObject *o) { return PyCode_Check(o); }
int main(void)
{
	Py_Initialize();
	return is_code(Py_None) | PyRun_SimpleString(PARK);
}
"""
PLUGIN = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
	if (!lib)
		return 1;
	((void (*)(void))dlsym(lib, "Py_Initialize"))();
	return ((int (*)(const char *))dlsym(lib, "PyRun_SimpleString"))(PARK);
}
"""


def compile_program(places, text, *flags):
    needs("cc")
    source, program = places.tmp / "program.c", places.tmp / "embeds"
    source.write_text(f"#define PARK {json.dumps(PARK)}\n{text}")
    subprocess.run(["cc", "-w", "-o", program, source, *flags], check=True)
    return program


def shared_pythons():
    return [p for p in pythons.pythons() if not pythons.is_fetched(p) and library(p)]


@pytest.mark.parametrize("pie", [True, False], ids=["pie", "no-pie"])
def test_embedded(places, pie):
    """The program has a copy of the type of code objects of its own."""
    tried = 0
    for python in shared_pythons():
        lib, home = library(python), prefix(python)
        headers = glob.glob(f"{home}/include/python3.{python.minor}*")
        if not headers:
            continue
        flags = [f"-I{headers[0]}", lib, f"-Wl,-rpath,{lib.parent}"]
        program = compile_program(places, EMBED, *flags, *([] if pie else ["-no-pie", "-fno-pic"]))
        p = places.start(program, env={"PYTHONHOME": home})
        places.check(p.pid, python.label.rstrip("+"))
        tried += 1
    if not tried:
        lacks("python-shared", "no Python with headers and a library")


@pytest.mark.needs("strip")
@pytest.mark.parametrize("python", own_pythons())
def test_linked_into_a_program(places, python):
    """Nothing of it is exported; then nothing at all is left but the code."""
    home = prefix(python)
    archives = glob.glob(f"{home}/lib/python3.{python.minor}/config-*/libpython3.{python.minor}*.a")
    headers = glob.glob(f"{home}/include/python3.{python.minor}*/Python.h")
    if not archives or not headers:
        lacks("python-static", "no libpython.a")
    # libpython3.X-pic.a is before libpython3.X.a
    flags = [f"-I{os.path.dirname(headers[0])}", min(archives)]
    libraries = ["-lm", "-ldl", "-lutil", "-lpthread", "-lz", "-lexpat"]
    try:
        program = compile_program(places, EMBED, *flags, *libraries)
    except subprocess.CalledProcessError:
        lacks("python-static", "libpython.a needs what is not here")
    for change in (lambda path: None, strip):
        change(program)
        p = places.start(program, env={"PYTHONHOME": home})
        places.check(p.pid, python.label.rstrip("t+"))
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()


@pytest.mark.parametrize("hidden", [False, True], ids=["exported", "hidden"])
def test_library_of_another_name(places, hidden):
    python = machine_python(shared=True)
    lib = places.tmp / "libengine.so"
    shutil.copy(library(python), lib)
    lib.chmod(0o755)
    if hidden:
        hide(lib)
    program = compile_program(places, PLUGIN, "-ldl")
    p = places.start(program, lib, env={"PYTHONHOME": prefix(python)})
    places.check(p.pid)


# --- containers ---


def child_of(p):
    return int(pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split()[0])


@pytest.mark.needs("unshare")
def test_other_mount_and_pid_namespace(places):
    options = ["--mount", "--pid", "--fork", "--mount-proc"]
    options += ["--user", "--map-root-user"] if os.geteuid() else []
    needs("namespaces", *options)
    p = places.park("unshare", *options, machine_python().path)
    places.check(child_of(p))


@pytest.mark.needs("unshare")
@is_root
def test_other_user_namespace(places):
    needs("namespaces", "--user", "--map-root-user")
    p = places.park("unshare", "--user", "--map-root-user", machine_python().path)
    places.check(p.pid)


@pytest.mark.parametrize("python", every_python(14))
def test_other_root(places, python):
    """Its files are not where it says, and none of the machine's own are there."""
    command = pythons.in_root(python)
    if not command:
        lacks("chroot", "not fetched, or the root cannot be changed")
    places.check(places.start(*command, "-c", PARK).pid)


@pytest.mark.parametrize("python", every_python(14))
def test_newest_by_their_own_loader(places, python):
    command = pythons.through_loader(python)
    if not command:
        lacks("python-fetched", "not from build/pythons")
    places.check(places.park(*command).pid, python.label.rstrip("t+"))


@pytest.mark.needs("unshare")
@is_root
def test_process_outside_of_the_container(places):
    needs("namespaces", "--mount", "--pid", "--fork", "--mount-proc")
    inside = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]
    error = places.error(places.park(machine_python().path).pid, inside)
    assert "there is no process" in error


# --- moments of a process' life ---


def test_process_that_is_just_starting(places):
    """Looked at from its first moment on: not ready, and then there. Nothing else."""
    for python in pythons.pythons():
        p = places.park(python.path, wait=False)
        deadline = time.monotonic() + 60
        while True:
            entry, frames = places.look(p.pid)
            if entry["error"] is None and frames == FRAMES:
                break
            assert time.monotonic() < deadline, (python.label, entry)
            allowed = ("is not ready", "just ending or starting", "is not a Python process")
            # between fork and exec it is a copy of this process
            assert entry["error"] is None or any(a in entry["error"] for a in allowed), entry


def test_process_that_ends(places):
    """Looked at until it is gone, with the interpreter taken down in between."""
    python = machine_python()
    p = places.start(python.path, "-c", "import time; print('up', flush=True); time.sleep(0.2)")
    seen = ""
    while "has ended" not in seen and "there is no process" not in seen:
        seen = places.error(p.pid) or ""
        allowed = ("not ready", "just ending", "has ended", "there is no process")
        assert not seen or any(a in seen for a in allowed), seen
    p.wait()
    assert "there is no process" in places.error(p.pid)


def test_exec_of_something_else(places):
    text = "import os; print('up', flush=True); os.execvp('sleep', ['sleep', '50'])"
    p = places.start(machine_python().path, "-c", text)
    deadline = time.monotonic() + 30
    while "(sleep) is not a Python process" not in (places.error(p.pid) or ""):
        assert time.monotonic() < deadline


def test_no_python(places):
    p = places.start("sleep", "50", wait=False)
    assert "is not a Python process" in places.error(p.pid)


def test_pypy(places):
    shutil.copy(shutil.which("sleep"), places.tmp / "pypy3.10")
    p = places.start(places.tmp / "pypy3.10", "50", wait=False)
    deadline = time.monotonic() + 30
    while "runs PyPy: only CPython is supported" not in (places.error(p.pid) or ""):
        assert time.monotonic() < deadline


def test_thread_of_the_kernel(places):
    try:
        flags = int(pathlib.Path("/proc/2/stat").read_text().rpartition(")")[2].split()[6])
    except OSError:
        lacks("kernel-threads", "none to be seen")
    if not flags & 0x200000:
        lacks("kernel-threads", "none to be seen")
    assert "thread of the kernel" in places.error(2)


def old_pythons():
    found = {}
    for folder in glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin")) + ["/usr/bin"]:
        for version in ("2.7", "3.5", "3.6"):
            path = os.path.join(folder, "python" + version)
            if os.path.exists(path):
                found.setdefault(version, path)
    return sorted(found.items())


def test_python_that_is_too_old(places):
    if not old_pythons():
        lacks("python-ancient", "none here")
    for version, path in old_pythons():
        text = "import sys, time; sys.stdout.write('up\\n'); sys.stdout.flush(); time.sleep(50)"
        p = places.start(path, "-c", text)
        assert f"python {version} is too old: 3.7 to 3.15 are supported" in places.error(p.pid)


# --- what may not be read ---


@pytest.fixture
def open_build(places, users):
    """The program at a place where every user can run it."""
    places.build = users.build
    return places


def system_python():
    """One that other users can run, too."""
    for p in pythons.pythons():
        if str(p.path).startswith("/usr/"):
            return p.path
    return lacks("python-system", "no Python for every user")


@is_root
def test_process_of_another_user(open_build, users):
    p = open_build.park(system_python())
    error = open_build.error(p.pid, as_user(users.bob, []))
    assert f"may not read process {p.pid}" in error
    assert f"it belongs to user 0, we are user {users.bob.uid}" in error
    assert "SYS_PTRACE" in error or "setcap" in error


def test_process_of_the_same_user(open_build, users):
    """Where the kernel allows it."""
    p = open_build.start(*as_user(users.bob, [system_python(), "-c", PARK]))
    entry, frames = open_build.look(p.pid, as_user(users.bob, []))
    if entry["error"]:
        assert "ptrace_scope" in entry["error"]
    else:
        assert frames == FRAMES


@is_root
def test_process_that_forbids_it(open_build, users):
    text = "import ctypes; ctypes.CDLL(None).prctl(4, 0)\n" + PARK
    p = open_build.start(*as_user(users.bob, [system_python(), "-c", text]))
    error = open_build.error(p.pid, as_user(users.bob, []))
    assert "PR_SET_DUMPABLE" in error
    # root still may
    entry, frames = open_build.look(p.pid)
    assert entry["error"] is None and [f[0] for f in frames] == [f[0] for f in FRAMES]


@is_root
@pytest.mark.needs("capsh")
def test_root_without_the_capability(open_build, users):
    p = open_build.start(*as_user(users.bob, [system_python(), "-c", PARK]))
    shell = ["capsh", "--drop=cap_sys_ptrace", "--", "-c", 'exec "$@"', "sh"]
    error = open_build.error(p.pid, shell)
    assert "we are root without CAP_SYS_PTRACE" in error and "--cap-add SYS_PTRACE" in error
