# SPDX-License-Identifier: MulanPSL-2.0
"""A required capability that is missing is a skipped test, and with CI=true a failed one."""

import ast
import functools
import pathlib
import re
import subprocess
import sys

import capabilities

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# The first is required, the second is not; a probe that finds nothing stands in for a machine that
# lacks it.
TESTS = """
import capabilities, pytest
capabilities.PROBES.update({"openssl": lambda: None, "ipv6": lambda: False})

def test_required(): capabilities.needs("openssl")
def test_machine(): capabilities.needs("ipv6")
@pytest.mark.needs("openssl")
def test_required_by_mark(): pass
@pytest.mark.parametrize("p", [pytest.param(0, marks=pytest.mark.lacks("torch", "none"))])
def test_required_of_a_parameter(p): pass
def test_there(): assert capabilities.needs("x86-64") in (True, False)
"""


def run_tests(tmp_path, ci):
    (tmp_path / "conftest.py").write_text((HERE / "conftest.py").read_text())
    (tmp_path / "test_some.py").write_text(TESTS)
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HERE), "HOME": str(tmp_path), **ci}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", tmp_path],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_skipped_elsewhere(tmp_path):
    r = run_tests(tmp_path, {})
    assert r.returncode == 0 and re.search("1 passed, 4 skipped", r.stdout), r.stdout
    assert "openssl: not found" in r.stdout


def test_failed_in_ci(tmp_path):
    r = run_tests(tmp_path, {"CI": "true"})
    assert r.returncode == 1 and "1 failed, 1 passed, 1 skipped, 2 errors" in r.stdout, r.stdout
    assert "openssl is missing, and required with CI=true: not found" in r.stdout
    assert "torch is missing, and required with CI=true: none" in r.stdout


UNIT_TESTS = """
#include "test.h"
TEST(some, passes) { NEEDS(1, "root", ""); CHECK(1); }
TEST(some, lacks_what_the_machine_may_lack) { NEEDS(0, "root", "not here"); CHECK(0); }
TEST(some, lacks_what_is_required) { NEEDS(0, "libsqlite3", "gone"); CHECK(0); }
TEST(some, cannot_run) { SKIP("because"); CHECK(0); }
"""


def test_unit_tests_do_the_same(tmp_path):
    compiler = capabilities.needs("cc")
    (tmp_path / "some.c").write_text(UNIT_TESTS)
    source = ["-I", ROOT / "tests/unit", ROOT / "tests/unit/main.c", tmp_path / "some.c"]
    wrap = "-Wl,--wrap=pthread_create,--wrap=sigaction"
    subprocess.run([compiler, "-D_GNU_SOURCE", wrap, "-o", tmp_path / "unit", *source], check=True)

    def run(**env):
        return subprocess.run(
            [tmp_path / "unit"], env=env, capture_output=True, text=True, cwd=ROOT, timeout=60
        )

    r = run()
    assert r.returncode == 0 and r.stdout.endswith("1 passed, 0 failed, 3 skipped\n"), r.stdout
    assert "SKIP some.cannot_run: because\n" in r.stdout
    assert "SKIP some.lacks_what_is_required: libsqlite3: gone\n" in r.stdout
    r = run(CI="true")
    assert r.returncode == 1 and r.stdout.endswith("1 passed, 1 failed, 2 skipped\n"), r.stdout
    assert "libsqlite3 is missing, and required with CI=true: gone" in r.stderr


# --- the tests keep to it ---


@functools.lru_cache(maxsize=None)
def calls(path):
    """(line, "module.function") of the calls that the file itself makes: not of programs in it."""
    return [
        (node.lineno, ast.unparse(node.func))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name))
    ]


def calls_of(pattern, but):
    return [
        f"{path.name}:{line}"
        for path in sorted(HERE.glob("*.py"))
        for line, name in calls(path)
        if re.fullmatch(pattern, name) and path.name not in but
    ]


def test_every_skip_names_a_capability():
    """Through capabilities.needs() and lacks()."""
    assert not calls_of(r"pytest\.(mark\.)?(skip|skipif|importorskip)", ["capabilities.py"])


def test_waiting_names_what_it_waits_for():
    """Through waiting.wait_until() and pause(); fabric_client.py is a program, too."""
    assert not calls_of(r"(time\.)?sleep", ["waiting.py", "fabric_client.py"])


def names_used():
    for path in HERE.glob("*.py"):
        yield from re.findall(r'\b(?:needs|lacks)\("([^"{]+)"', path.read_text())
    for path in (ROOT / "tests/unit").rglob("*.c"):
        yield from re.findall(r'NEEDS\(.*?, "([^"]+)",', path.read_text(), re.S)


def test_names_are_in_the_table():
    assert set(names_used()) <= set(capabilities.table())
    assert set(capabilities.PROBES) <= set(capabilities.table())


def test_what_bootstrap_installs_is_required():
    """Where a test can lack it at all: what only builds and checks need has no name here."""
    rows = re.findall(r"^test +want +(\S+)", (ROOT / "bootstrap").read_text(), re.M)
    elsewhere = {"pytest", "clang-format", "sqlite-shell", "mandoc"}
    other = {"openssl-shell": "openssl", "venv": "python-venv", "torch": "torch-system"}
    for need in set(rows) - elsewhere:
        assert capabilities.table()[other.get(need, need)] == "required", need
