# SPDX-License-Identifier: MulanPSL-2.0
"""`pip install .`: the wheel of packaging/wheel, installed into fresh environments and used there.

No network: nothing but the interpreter, its pip, and what the system has to build with. The objects
of the build under test are used again ($SONDE_BUILD).
"""

import base64
import csv
import functools
import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import pytest
import pythons
import torches
from capabilities import lacks
from waiting import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
OLDEST = 8
PROGRAMS = {"sonde", "msmemscope", "dynolog", "dyno", "python_stack_sniffer", "py_stack_snap"}

JOB = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(12345678))
print("done")
"""
# Without preloaded libraries: what needs none.
PACKAGE_JOB = """
import msmemscope
msmemscope.config(output_path="out")
msmemscope.start()
msmemscope.step()
msmemscope.stop()
print("done")
"""


def environment(**more):
    """Of a user who has none of this project's variables set."""
    kept = ("HOME", "LANG", "TMPDIR")
    env = {k: v for k, v in os.environ.items() if k in kept}
    env["PATH"] = os.environ["PATH"]
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = env["PIP_NO_INDEX"] = env["PIP_NO_INPUT"] = "1"
    env["PIP_ROOT_USER_ACTION"] = "ignore"
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env.update({k: str(v) for k, v in more.items()})
    return env


def run(*words, env=None, cwd=None, status=0):
    r = subprocess.run(
        [str(w) for w in words],
        env=env or environment(),
        cwd=cwd and str(cwd),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=240,
    )
    if status is not None:
        assert r.returncode == status, (words, r.returncode, r.stdout[-3000:], r.stderr[-3000:])
    return r


def has_venv(python):
    r = run(python.path, "-c", "import ensurepip, venv", status=None)
    return r.returncode == 0 and not python.label.endswith("t")


def with_venv():
    """The oldest and the newest interpreter that can make environments with pip."""
    able = [p for p in pythons.pythons() if p.minor >= OLDEST and has_venv(p)]
    ends = able[:1] + able[1:][-1:]
    skip = pytest.mark.lacks("python-venv", "no Python has venv and ensurepip")
    return [pytest.param(p, id=p.label) for p in ends] or [pytest.param(None, marks=skip)]


def newest():
    python = with_venv()[-1].values[0]
    if not python:
        lacks("python-venv", "no Python has venv and ensurepip")
    return python


KEPT = tempfile.TemporaryDirectory()


@functools.lru_cache(maxsize=None)
def pip_of(python):
    """What `python -m venv` puts into an environment: pip, which takes seconds to unpack and to compile.
    Done once for each interpreter, and copied."""
    folder = pathlib.Path(KEPT.name) / python.label
    run(python.path, "-m", "venv", folder)
    return next(folder.glob("lib*/python3*/site-packages"))


class Venv:
    def __init__(self, folder, python):
        self.dir = folder
        run(python.path, "-m", "venv", "--without-pip", folder)
        packages = next(folder.glob("lib*/python3*/site-packages"))
        for part in pip_of(python).iterdir():
            (shutil.copytree if part.is_dir() else shutil.copy2)(part, packages / part.name)
        self.bin = folder / "bin"
        self.python = self.bin / "python"

    def pip(self, *words, **kw):
        return run(self.python, "-m", "pip", *words, **kw)


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    """An environment whose pip builds."""
    return Venv(tmp_path_factory.mktemp("builder") / "venv", newest())


def pip_wheel(builder, build, folder, source=ROOT):
    env = environment(SONDE_BUILD=build)
    del env["PYTHONDONTWRITEBYTECODE"]
    builder.pip("wheel", "--no-deps", "-w", folder, source, env=env)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(build, builder, tmp_path_factory):
    return pip_wheel(builder, build, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def target(wheel, builder, tmp_path_factory):
    """The wheel installed with --target: usable by every interpreter."""
    folder = tmp_path_factory.mktemp("target") / "packages"
    builder.pip("install", "--target", folder, wheel)
    return folder


def show(sonde, out, seconds=30):
    """What `sonde mem show` says once the recorder has left."""
    ask = lambda: run(sonde, "mem", "show", out, status=None)

    def shown():
        r = ask()
        return r.stdout if r.returncode == 0 else None

    return wait_until(shown, lambda: ask().stderr, seconds, 0.2)


def rows(out):
    found = []
    for name in sorted(out.glob("msmemscope_*/device_*/dump/*.csv")):
        with open(name, newline="") as f:
            found += list(csv.DictReader(f))
    return found


def files_of(folder):
    found = (p for p in folder.rglob("*") if not p.is_dir() or p.is_symlink())
    return {str(p.relative_to(folder)) for p in found}


# --- the file ---


def test_the_wheel_is_what_it_says(wheel):
    assert wheel.name.startswith("sonde-") and "-cp38-abi3-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        record = next(n for n in names if n.endswith(".dist-info/RECORD"))
        listed = {r[0]: r[1:] for r in csv.reader(io.StringIO(z.read(record).decode()))}
        assert sorted(listed) == sorted(names) == sorted(set(names))
        for name, (digest, size) in listed.items():
            data = z.read(name)
            if name != record:
                sum_ = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={sum_}", str(len(data))), name
        metadata = z.read(record.replace("RECORD", "METADATA")).decode()
    assert "\nRequires-Python: >=3.8\n" in metadata and "# sonde" in metadata
    scripts = {n.rsplit("/", 1)[1] for n in names if ".data/scripts/" in n}
    assert scripts == PROGRAMS
    for end in (
        "/data/lib64/libsonde_guest.so",
        "/data/lib64/libsonde_cuda_hook.so",
        "/data/lib64/libsonde_host_hook.so",
        "/data/lib64/libsonde_monitor.so",
        "/data/include/sonde/sonde.h",
        "/data/share/man/man1/msmemscope.1",
        ".dist-info/licenses/LICENSE",
    ):
        assert any(n.endswith(end) for n in names), end
    for name in ("sonde/_sonde.abi3.so", "msmemscope/__init__.py", "msmemscope/py.typed"):
        assert name in names
    for name in ("sonde/_monitor.abi3.so", "msmonitor/py.typed", "IPCMonitor/__init__.py"):
        assert name in names
    assert not any("__pycache__" in n or n.startswith("/") for n in names)


def test_every_module_of_the_tree_is_in_it(wheel):
    source = ROOT / "src/python"
    with zipfile.ZipFile(wheel) as z:
        assert {n for n in z.namelist() if n.endswith(".py")} == {
            str(p.relative_to(source)) for p in source.rglob("*.py")
        }


def test_the_same_files_make_the_same_wheel(wheel, build, builder, tmp_path):
    assert pip_wheel(builder, build, tmp_path).read_bytes() == wheel.read_bytes()


def test_the_source_archive_builds(wheel, build, builder, tmp_path):
    """And pip changes nothing in the tree that it builds from."""
    hook = "import sonde_wheel, sys; print(sonde_wheel.build_sdist(sys.argv[1]))"
    env = environment(PYTHONPATH=ROOT / "packaging/wheel")
    name = run(sys.executable, "-c", hook, tmp_path, cwd=ROOT, env=env).stdout.strip()
    with tarfile.open(tmp_path / name) as tar:
        names = {n.split("/", 1)[1] for n in tar.getnames()}
        assert {"PKG-INFO", "pyproject.toml", "Makefile", "bootstrap", "src/cli/main.c"} <= names
        assert not any(n.startswith(("build", ".git/")) or "__pycache__" in n for n in names)
        tar.extractall(tmp_path)
    (tree,) = (p for p in tmp_path.iterdir() if p.is_dir())
    before = files_of(tree)
    (tmp_path / "again").mkdir()
    again = pip_wheel(builder, build, tmp_path / "again", tree)
    with zipfile.ZipFile(wheel) as a, zipfile.ZipFile(again) as b:
        assert a.namelist() == b.namelist()
    assert files_of(tree) == before


# --- fresh environments ---


@pytest.mark.deadline(240)
@pytest.mark.parametrize("python", with_venv())
def test_in_a_fresh_environment(wheel, python, tmp_path):
    venv = Venv(tmp_path / "venv", python)
    before = files_of(venv.dir)
    venv.pip("install", wheel)
    assert PROGRAMS <= {p.name for p in venv.bin.iterdir()}
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "package_job.py").write_text(PACKAGE_JOB)

    # under the launcher
    words = ["--device=npu,cpu", "--output-path", tmp_path / "run"]
    r = run(venv.bin / "msmemscope", *words, "--", venv.python, "job.py", cwd=tmp_path)
    assert r.stdout == "done\n"
    assert "1 process made" in show(venv.bin / "sonde", tmp_path / "run")
    assert any("12345678" in r["Attr"] for r in rows(tmp_path / "run"))

    # the monitor finds its libraries, and says that there is no device
    job = "from msmonitor import *; Monitor().start([ActivityKind.Kernel])"
    r = run(venv.python, "-c", job, cwd=tmp_path)
    assert "neither libmspti.so nor libcupti" in r.stderr

    # with nothing preloaded
    assert run(venv.python, "package_job.py", cwd=tmp_path).stdout == "done\n"
    assert "1 step" in show(venv.bin / "sonde", tmp_path / "out")

    venv.pip("uninstall", "-y", "sonde")
    assert files_of(venv.dir) == before


@pytest.fixture(scope="module")
def venv(wheel, tmp_path_factory):
    v = Venv(tmp_path_factory.mktemp("used") / "venv", newest())
    v.pip("install", wheel)
    return v


def test_the_environment_recipe(venv, tmp_path):
    (tmp_path / "job.py").write_text(PACKAGE_JOB)
    script = """
    source "$1"/msmemscope --load-api-env || exit
    case $LD_PRELOAD in *"${1%/bin}"/lib*/libascend_kernel_hook.so*) ;; *) exit 10 ;; esac
    "$1"/python job.py || exit
    source "$1"/msmemscope --unload-api-env || exit
    test -z "${LD_PRELOAD:-}"
    """
    r = run("bash", "-c", script, "bash", venv.bin, cwd=tmp_path)
    assert "done\n" in r.stdout
    show(venv.bin / "sonde", tmp_path / "out")


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_program_answers_under_its_name(venv, build, tmp_path, name):
    """Also through a link from elsewhere; what it says is what the build's says."""
    (tmp_path / name).symlink_to(venv.bin / name)
    for option in ("--help", "--nonsense"):
        r = run(build / "bin" / name, option, status=None)
        for path in (venv.bin / name, tmp_path / name):
            got = run(path, option, status=None)
            assert (got.returncode, got.stdout, got.stderr) == (r.returncode, r.stdout, r.stderr)


def test_man_pages_and_header_are_installed(venv):
    assert (venv.dir / "share/man/man1/msmemscope.1").exists()
    assert (venv.dir / "include/sonde/sonde.h").exists()


def test_a_path_with_spaces(wheel, tmp_path):
    """Everything but preloading, which the loader cannot do: that is said."""
    venv = Venv(tmp_path / "my envs" / "one", newest())
    venv.pip("install", wheel)
    (tmp_path / "job.py").write_text(PACKAGE_JOB)
    assert run(venv.python, "job.py", cwd=tmp_path).stdout == "done\n"
    show(venv.bin / "sonde", tmp_path / "out")
    assert run(venv.bin / "dyno", "--help").stdout
    r = run(venv.bin / "msmemscope", "--", "true", cwd=tmp_path, status=None)
    assert r.returncode != 0 and "a space" in r.stderr and "somewhere else" in r.stderr


@pytest.mark.parametrize("how", ["--user", "--prefix"])
def test_other_places(wheel, how, tmp_path):
    """Below the user's home, and below any folder."""
    base = tmp_path / "base"
    env = environment(PYTHONUSERBASE=base)
    python = newest()
    words = [how] if how == "--user" else [how, base]
    # pip of a distribution's own Python asks for this word; others do not know the variable
    env["PIP_BREAK_SYSTEM_PACKAGES"] = "1"
    run(python.path, "-m", "pip", "install", *words, wheel, env=env)
    (where,) = base.rglob("msmemscope/__init__.py")
    (sonde,) = base.rglob("bin/sonde")
    env["PYTHONPATH"] = str(where.parents[1])
    (tmp_path / "job.py").write_text(PACKAGE_JOB)
    assert run(python.path, "job.py", cwd=tmp_path, env=env).stdout == "done\n"
    show(sonde, tmp_path / "out")
    (tmp_path / "memory.py").write_text(JOB)
    words = ["--device=npu,cpu", "--output-path", tmp_path / "run", "--"]
    run(sonde.parent / "msmemscope", *words, python.path, "memory.py", env=env, cwd=tmp_path)
    assert "1 process made" in show(sonde, tmp_path / "run")


@pytest.mark.parametrize("python", pythons.one_per_minor(oldest=OLDEST, extensions=True))
def test_one_folder_serves_every_interpreter(target, python, tmp_path):
    (tmp_path / "job.py").write_text(PACKAGE_JOB)
    env = environment(PYTHONPATH=target)
    assert run(python.path, "job.py", cwd=tmp_path, env=env).stdout == "done\n"
    show(target / "bin/sonde", tmp_path / "out")
    job = "import sonde; sonde.step(); print(sonde._monitor.steps())"
    assert run(python.path, "-c", job, cwd=tmp_path, env=env).stdout == "1\n"


def test_with_a_real_torch(target, tmp_path):
    torch = torches.a_torch()
    (tmp_path / "job.py").write_text(
        "import torch, msmemscope\n"
        "msmemscope.config(output_path='out', events='alloc,free,launch')\n"
        "msmemscope.start()\n"
        "x = torch.ones(1000, requires_grad=True)\n"
        "(x * 2).sum().backward()\n"
        "msmemscope.stop()\n"
        "print(float(x.grad.sum()))\n"
    )
    env = environment(PYTHONPATH=target)
    assert run(torch.path, "job.py", cwd=tmp_path, env=env).stdout == "2000.0\n"
    show(target / "bin/sonde", tmp_path / "out")


def test_an_editable_installation_uses_the_tree(build, tmp_path):
    venv = Venv(tmp_path / "venv", newest())
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ROOT.iterdir():
        if not name.name.startswith("build") and name.name != ".git":
            (tree / name.name).symlink_to(name)
    # objects are copied, so that what is linked to the tree is not the build under test
    copy = tmp_path / "build"
    run("cp", "-a", "--reflink=auto", *editable_parts(build, copy), copy)
    venv.pip("install", "-e", tree, env=environment(SONDE_BUILD=copy))
    code = "import msmemscope, os, sonde._sonde; print(os.path.realpath(msmemscope.__file__))"
    where = run(venv.python, "-c", code, cwd=tmp_path).stdout.strip()
    assert where == str(ROOT / "src/python/msmemscope/__init__.py")
    assert run(venv.bin / "sonde", "--version").stdout.startswith("sonde ")
    script = 'source "$1" --load-api-env && test -n "$LD_PRELOAD"'
    run("bash", "-c", script, "bash", venv.bin / "msmemscope")
    (tmp_path / "job.py").write_text(JOB)
    words = ["--device=npu,cpu", "--output-path", tmp_path / "run", "--"]
    run(venv.bin / "msmemscope", *words, venv.python, "job.py", cwd=tmp_path)
    assert "1 process made" in show(venv.bin / "sonde", tmp_path / "run")


def editable_parts(build, copy):
    copy.mkdir()
    return [build / n for n in ("bin", "lib", "python", "guest", "own", "extension")]


# --- what cannot be built says why ---


def hook(builder_python, code, **more):
    env = environment(PYTHONPATH=ROOT / "packaging/wheel", **more)
    code = "import sonde_wheel, sysconfig\n" + code
    return run(builder_python, "-c", code, cwd=ROOT, env=env, status=None)


def path_without(tmp_path, *names):
    """A PATH with everything but these programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(":")):
        for program in pathlib.Path(place).glob("*") if place else []:
            link = folder / program.name
            if program.name not in names and os.access(program, os.X_OK):
                if link.is_symlink():
                    link.unlink()
                link.symlink_to(program)
    return folder


@pytest.mark.parametrize("missing, said", [("make", "make"), ("gcc", "compiler")])
def test_missing_tools_are_named(tmp_path, missing, said):
    path = path_without(tmp_path, missing)
    cold = tmp_path / "cold"
    r = hook(sys.executable, "sonde_wheel.build_wheel('.')", PATH=path, SONDE_BUILD=cold)
    assert r.returncode == 1
    assert f"missing to build it: {said}" in r.stderr
    assert "./bootstrap build" in r.stderr.splitlines()[-1]


def test_free_threaded_interpreters_are_told(tmp_path):
    code = "sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1\nsonde_wheel.build_wheel('.')"
    r = hook(sys.executable, code, SONDE_BUILD=tmp_path)
    assert r.returncode == 1 and "free-threaded" in r.stderr
