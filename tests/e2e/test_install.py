# SPDX-License-Identifier: MulanPSL-2.0
"""`make install` and `make uninstall`: what is there afterwards, and that it works from there."""

import os
import pathlib
import shutil
import subprocess

import pytest
import pythons
from capabilities import lacks

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOB = """
import msmemscope
msmemscope.config(output_path="out")
msmemscope.start()
msmemscope.step()
msmemscope.stop()
print("done")
"""


def run(*words, cwd=None, **env):
    clean = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR")}
    clean.update({k: str(v) for k, v in env.items()})
    r = subprocess.run(
        [str(w) for w in words],
        cwd=cwd and str(cwd),
        env=clean,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=110,
    )
    assert r.returncode == 0, (words, r.stdout[-2000:], r.stderr[-2000:])
    return r.stdout


def make(build, *words):
    """The names that make knows the build's files by."""
    inside = os.path.relpath(build, ROOT)
    folder = build if inside.startswith("..") else inside
    return run("make", "--no-print-directory", f"O={folder}", *words, cwd=ROOT)


@pytest.fixture(scope="module")
def prefix(build, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix") / "opt"
    make(build, "install", f"PREFIX={folder}")
    return folder


def test_packages_are_beside_the_libraries(prefix):
    source = ROOT / "src/python"
    expected = {str(p.relative_to(source)) for p in source.rglob("*.py")}
    expected |= {str(p.relative_to(source)) for p in source.rglob("py.typed")}
    packages = prefix / "lib/python"
    found = {str(p.relative_to(packages)) for p in packages.rglob("*") if p.is_file()}
    assert found == expected | {"sonde/_sonde.abi3.so", "sonde/_monitor.abi3.so"}
    for name in found:
        is_program = name.startswith("putils/tools/") or name.endswith(".so")
        assert os.access(packages / name, os.X_OK) == is_program, name


@pytest.mark.parametrize("python", pythons.one_per_minor(oldest=8))
def test_every_interpreter_can_use_it(prefix, python, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    env = {"PYTHONPATH": prefix / "lib/python", "PYTHONDONTWRITEBYTECODE": 1}
    assert run(python.path, "job.py", cwd=tmp_path, **env) == "done\n"
    assert "1 step" in run(prefix / "bin/sonde", "mem", "show", tmp_path / "out")


def test_the_launcher_works_from_there(prefix, tmp_path):
    run(prefix / "bin/msmemscope", "--device=npu,cpu", "--", "true", cwd=tmp_path)
    (recording,) = (tmp_path / "memscopeDumpResults").glob("recording_*")
    assert run(prefix / "bin/sonde", "mem", "show", recording)


def test_one_interpreter_finds_it_by_itself_and_everything_goes_again(build, tmp_path):
    prefix, site = tmp_path / "opt", tmp_path / "site"
    words = [f"PREFIX={prefix}", f"PYTHON_SITE={site}"]
    make(build, "install", *words)
    code = f"import site; site.addsitedir({str(site)!r})\n"
    code += "import msmemscope; print(msmemscope.__file__)"
    python = pythons.pythons()[-1]
    where = run(python.path, "-c", code).strip()  # leaves its bytecode beside the files
    assert where == str(prefix / "lib/python/msmemscope/__init__.py")
    assert list(prefix.rglob("*.pyc"))
    make(build, "uninstall", *words)
    left = [p for top in (prefix, site) for p in top.rglob("*") if not p.is_dir()]
    assert left == []
    assert not (prefix / "lib/python").exists()


def test_staged_below_another_root(build, tmp_path):
    words = [f"DESTDIR={tmp_path}", "PREFIX=/usr", "PYTHON_SITE=/usr/lib/python3/site"]
    make(build, "install", *words)
    pth = tmp_path / "usr/lib/python3/site/sonde.pth"
    assert pth.read_text() == "/usr/lib/python\n"


def test_without_headers_of_python_make_says_what_to_do(tmp_path):
    cold = tmp_path / "cold"
    r = subprocess.run(
        ["make", f"O={cold}", "PYTHON_INCLUDE=", f"{cold}/python/sonde/_sonde.abi3.so"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=110,
    )
    assert r.returncode == 2
    assert "no Python.h" in r.stderr and "./bootstrap build" in r.stderr


def newest_headers():
    """Of an interpreter from 3.12 on, where None is not counted."""
    code = "import sysconfig; print(sysconfig.get_path('include'))"
    for python in reversed([p for p in pythons.pythons() if p.minor >= 12]):
        folder = pathlib.Path(run(python.path, "-c", code).strip())
        if (folder / "Python.h").exists():
            return folder
    return lacks("python-headers", "no interpreter from 3.12 on has them")


def test_newer_headers_make_it_for_older_interpreters(build, tmp_path):
    """Who counts references to None, too few of them, ends in the middle of the job."""
    old = [p for p in pythons.pythons() if 8 <= p.minor <= 11]
    if not old:
        lacks("python-old", "no Python from 3.8 to 3.11")
    o = tmp_path / "o"
    shutil.copytree(build / "python", o / "python", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    # what has nothing to do with headers of Python is not made again
    guest = o / "lib/libsonde_guest.so"
    guest.parent.mkdir()
    shutil.copy2(build / "lib" / guest.name, guest)
    words = ["DEBUG=1", f"PYTHON_INCLUDE={newest_headers()}", f"{o}/python/sonde/_sonde.abi3.so"]
    run("make", "-j2", f"O={o}", "-o", guest, *words, cwd=ROOT)
    code = """
import sys
from sonde import _sonde
before = sys.getrefcount(None)
for _ in range(1000):
    _sonde.stop()
assert sys.getrefcount(None) > before - 100
"""
    for python in {p.path: p for p in (old[0], old[-1])}:
        run(python, "-c", code, PYTHONPATH=tmp_path / "o/python")
