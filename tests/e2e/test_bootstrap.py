# SPDX-License-Identifier: MulanPSL-2.0
"""./bootstrap against make-believe systems: a PATH of its own with package managers that only write
down what they are asked. Nothing is installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BASE = "awk cat cp dirname echo env false find flock grep head ls make mkdir rm sed sh tail true".split()
PRETENDED = """capsh chromium clang clang-format-14 g++ git ip kubectl logrotate mandoc openssl promtool script
    setsid sqlite3 systemd-socket-activate unshare""".split()

MAKEFILE = """\
all:
	@echo built
check:
	@flock build/environments.lock echo checked with $(PYTHON)
"""


class System:
    """A directory with bootstrap in it, and the only PATH that bootstrap sees."""

    def __init__(self, tmp):
        self.repo = tmp / "repo"
        self.bin = tmp / "bin"
        self.calls = tmp / "calls"
        (self.repo / "tools").mkdir(parents=True)
        self.bin.mkdir()
        shutil.copy(ROOT / "bootstrap", self.repo)
        shutil.copy(ROOT / "tools/python_include", self.repo / "tools")
        (self.repo / "Makefile").write_text(MAKEFILE)
        (self.repo / "tools/demo").write_text("echo the demo\n")
        for name in BASE:
            self.program(name, f'exec {shutil.which(name)} "$@"')
        for name in PRETENDED:
            self.program(name, "exit 0")
        has = 'case "$*" in *"import tensorboard"* | *"import hta"* | *"import torch"*) exit 0 ;; esac'
        self.program("python3", f'{has}\nexec {sys.executable} "$@"')
        viewers = self.repo / "build/viewers/bin/python"
        viewers.parent.mkdir(parents=True)
        shutil.copy(self.bin / "true", viewers)
        self.user("root")
        # a compiler that has every library, but those whose name a test has put here
        self.absent = tmp / "absent"
        self.absent.mkdir()
        self.program(
            "gcc",
            f"""for a; do case $a in -l*) [ ! -e "{self.absent}/$a" ] || exit 1 ;; esac; done
            exit 0""",
        )

    def program(self, name, body):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def remove(self, *names):
        for name in names:
            (self.bin / name).unlink()

    def user(self, who):
        self.program("id", f"echo {0 if who == 'root' else 1000}")

    def manager(self, name, then="exit 0"):
        """A package manager that writes down how it was called, then does `then`."""
        self.program(name, f'echo "{name} $*" >>{self.calls}\n{then}')

    def provides(self, *names):
        """Shell text by which a fake installation makes programs and libraries appear."""
        lines = []
        for name in names:
            if name.startswith("-l"):
                lines.append(f"rm -f {self.absent}/{name}")
            else:
                kept = self.bin.parent / f"kept-{name}"
                shutil.copy(self.bin / name, kept)
                self.remove(name)
                lines.append(f"[ -e {self.bin}/{name} ] || cp {kept} {self.bin}/{name}")
        return "\n".join(f'case "$*" in *install*) {line} ;; esac' for line in lines)

    def run(self, *args):
        return subprocess.run(
            [str(self.repo / "bootstrap"), *args],
            env={"PATH": str(self.bin), "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=110,
        )

    def called(self):
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def system(tmp_path):
    return System(tmp_path)


@pytest.mark.parametrize(
    "what, said", [("build", "done"), ("demo", "the demo"), ("test", "checked")]
)
def test_nothing_missing_installs_nothing(system, what, said):
    system.manager("apt-get", "exit 1")
    r = system.run(what)
    assert r.returncode == 0, r.stderr
    assert said in r.stdout
    assert system.called() == []


def test_dnf_gets_only_what_is_missing(system):
    (system.absent / "-ljansson").touch()
    (system.absent / "-ldw").touch()
    system.manager("dnf", system.provides("make", "-ljansson", "-ldw"))
    r = system.run()
    assert r.returncode == 0, r.stderr
    assert system.called() == ["dnf install -y make jansson-devel elfutils-devel"]


def test_yum_serves_where_there_is_no_dnf(system):
    (system.absent / "-lzstd").touch()
    system.manager("yum", system.provides("-lzstd"))
    assert system.run().returncode == 0
    assert system.called() == ["yum install -y libzstd-devel"]


def test_building_does_not_ask_for_what_only_tests_need(system):
    system.remove("clang", "script", "clang-format-14")
    system.manager("dnf", "exit 1")
    assert system.run("build").returncode == 0
    assert system.called() == []


def test_apt_with_an_old_index_updates_and_tries_again(system, tmp_path):
    (system.absent / "-lxxhash").touch()
    fresh = tmp_path / "fresh"
    system.program("apt-cache", 'echo "Package: $3"')
    system.manager(
        "apt-get",
        f"""case $1 in update) : >{fresh}; exit 0 ;; esac
        [ -e {fresh} ] || exit 100
        """ + system.provides("-lxxhash"),
    )
    r = system.run()
    assert r.returncode == 0, r.stderr
    assert [c.split()[1] for c in system.called()] == ["install", "update", "install"]
    assert "--no-install-recommends" in system.called()[2]
    assert system.called()[2].endswith(" libxxhash-dev")


def test_apt_without_an_index_updates_first(system):
    (system.absent / "-lxxhash").touch()
    system.program("apt-cache", "exit 100")
    system.manager("apt-get", system.provides("-lxxhash"))
    assert system.run().returncode == 0
    assert [c.split()[1] for c in system.called()] == ["update", "install"]


def test_apt_finds_the_sanitizer_runtime_of_the_clang_it_brings(system, tmp_path):
    system.program(
        "clang",
        f"""case "$*" in *-E*) echo 17 ;; *-fsanitize*) [ -e {tmp_path}/rt ] ;; esac""",
    )
    system.program("apt-cache", 'echo "Package: $3"')
    install = f'case "$*" in *libclang-rt-17-dev*) : >{tmp_path}/rt ;; esac\n'
    system.manager("apt-get", install + system.provides("clang"))
    r = system.run("test")
    assert r.returncode == 0, r.stdout + r.stderr
    assert [c.split()[-1] for c in system.called()] == ["clang", "libclang-rt-17-dev"]


def test_without_root_or_sudo_it_prints_the_line_to_run(system):
    (system.absent / "-ldw").touch()
    system.user("somebody")
    system.manager("dnf")
    r = system.run()
    assert r.returncode == 1
    assert "  su -c 'dnf install -y elfutils-devel'\n" in r.stderr
    assert system.called() == []


def test_sudo_without_a_password_is_used(system):
    (system.absent / "-ldw").touch()
    system.user("somebody")
    system.program("sudo", f'echo "sudo $*" >>{system.calls}; [ "$1" != -n ] || shift; exec "$@"')
    system.manager("dnf", system.provides("-ldw"))
    assert system.run().returncode == 0
    assert "sudo -n dnf install -y elfutils-devel" in system.called()


def test_sudo_that_would_ask_is_not_waited_for_without_a_terminal(system):
    (system.absent / "-ldw").touch()
    system.user("somebody")
    system.program("sudo", "exit 1")
    system.manager("dnf")
    r = system.run()
    assert r.returncode == 1
    assert "  sudo sh -c 'dnf install -y elfutils-devel'\n" in r.stderr


def test_a_package_that_tests_can_do_without_may_be_unavailable(system):
    (system.absent / "-l:libjemalloc.so.2").touch()
    (system.absent / "-l:libtcmalloc_minimal.so.4").touch()
    system.manager("dnf", "echo no match; exit 1")
    r = system.run("test")
    assert r.returncode == 0, r.stderr
    assert "jemalloc cannot be had here" in r.stdout
    together = "dnf install -y jemalloc gperftools-libs"
    assert system.called() == [together, "dnf install -y jemalloc", "dnf install -y gperftools-libs"]


def test_a_failed_installation_shows_its_log(system):
    (system.absent / "-ldw").touch()
    system.manager("dnf", "echo 'mirror is on fire'; exit 1")
    r = system.run()
    assert r.returncode == 1
    assert "mirror is on fire" in r.stderr
    assert "dnf could not install: elfutils-devel" in r.stderr


def test_an_installation_that_does_not_help_is_not_repeated_for_ever(system):
    (system.absent / "-ldw").touch()
    system.manager("dnf")
    r = system.run()
    assert r.returncode == 1
    assert "still missing: libdw" in r.stderr
    assert len(system.called()) == 2


def test_no_package_manager_names_what_is_missing(system):
    (system.absent / "-ldw").touch()
    r = system.run()
    assert r.returncode == 1
    assert "missing: libdw" in r.stderr


@pytest.mark.parametrize("what", ["build", "test"])
def test_a_failed_build_shows_its_log(system, what):
    (system.repo / "Makefile").write_text("all check:\n\t@echo it broke here; false\n")
    r = system.run(what)
    assert r.returncode in (1, 2)
    assert "it broke here" in r.stdout + r.stderr


def test_help_and_unknown_words(system):
    assert "demo" in system.run("--help").stdout
    assert system.run("tset").returncode == 2
    assert system.run("build", "again").returncode == 2


def test_needs_lists_without_installing(system):
    (system.absent / "-ldw").touch()
    system.remove("script")
    system.manager("dnf")
    assert system.run("needs").stdout.split() == ["libdw", "script"]
    assert system.called() == []


def test_needs_for_building_alone(system):
    (system.absent / "-ldw").touch()
    system.remove("script")
    assert system.run("needs", "build").stdout.split() == ["libdw"]


def test_headers_of_python_are_needed_to_build(system):
    """An interpreter without headers, and a compiler that includes what it is given."""
    system.program("python3", 'echo /nowhere')
    (system.repo / "tools/python_include").write_text("exit 0\n")
    system.manager("dnf", "exit 1")
    r = system.run("needs", "build")
    assert r.stdout.split() == ["python-headers"], r.stderr
    assert "dnf could not install: python3-devel" in system.run().stderr
