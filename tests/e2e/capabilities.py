# SPDX-License-Identifier: MulanPSL-2.0
"""What a test needs and the machine may lack: the only way to skip a test.

    needs("openssl")                        checks for it, in a test or a fixture
    lacks("mount", "cannot mount here")     the test has found out itself
    @pytest.mark.needs("root")              the same for a whole test; also in a pytest.param
    @pytest.mark.lacks("torch", "why")

tests/capabilities lists the names. Without the capability the test is skipped; with CI=true it fails
when the capability is required there.
"""

import functools
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import pytest

TABLE = pathlib.Path(__file__).resolve().parents[1] / "capabilities"
KINDS = ("required", "machine")
LIBRARY_FOLDERS = (
    f"/usr/lib/{os.uname().machine}-linux-gnu",
    f"/lib/{os.uname().machine}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
)


@functools.lru_cache(maxsize=None)
def table(path=TABLE):
    """{name: kind}"""
    rows = {}
    for line in pathlib.Path(path).read_text().splitlines():
        words = line.split("#", 1)[0].split()
        if words:
            assert len(words) >= 3 and words[1] in KINDS and words[0] not in rows, line
            rows[words[0]] = words[1]
    return rows


def lacks(name, why):
    """Ends the test: it is skipped, or it fails where CI requires the capability."""
    kind = table()[name]
    if kind == "required" and os.environ.get("CI") == "true":
        pytest.fail(f"{name} is missing, and required with CI=true: {why}", pytrace=False)
    pytest.skip(f"{name}: {why}", allow_module_level=True)


def needs(name, *arguments):
    """Ends the test like lacks() where the capability is not there; else returns what was found."""
    found = PROBES[name](*arguments)
    if not found:
        lacks(name, REASONS.get(name, "not found"))
    return found


# --- how to find out ---


def find_library(name):
    for folder in LIBRARY_FOLDERS:
        path = pathlib.Path(folder) / name
        if path.exists():
            return str(path)
    return None


def programs(*names):
    return lambda: all(map(shutil.which, names)) and shutil.which(names[0])


def can_unshare(*flags):
    """Whether such namespaces (flags of unshare) can be made and used."""
    flags = flags or ("-m",)
    if not shutil.which("unshare"):
        return False
    use = ["mount", "--bind", "/", "/"] if "-m" in flags else ["true"]
    return subprocess.run(["unshare", *flags, *use], capture_output=True).returncode == 0


def can_be_others():
    from users import can_be_others  # which asks for capabilities itself

    return can_be_others()


def has_device():
    return any(re.match("nvidia|davinci|kfd|dxg", name) for name in os.listdir("/dev"))


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


PROBES = {
    "c++": programs("g++", "c++"),
    "capsh": programs("capsh"),
    "cc": programs("cc"),
    "chromium": lambda: shutil.which("chromium") or shutil.which("google-chrome"),
    "git": programs("git"),
    "ip": programs("ip"),
    "jemalloc": lambda: find_library("libjemalloc.so.2"),
    "kubectl": programs("kubectl"),
    "logrotate": programs("logrotate"),
    "nsenter": programs("nsenter"),
    "openssl": programs("openssl"),
    "prlimit": programs("prlimit"),
    "prometheus": programs("prometheus", "promtool"),
    "setpriv": programs("setpriv"),
    "strip": programs("strip"),
    "systemd": programs("systemd-socket-activate", "systemd-analyze"),
    "tcmalloc": lambda: find_library("libtcmalloc_minimal.so.4"),
    "unshare": programs("unshare"),
    "namespaces": can_unshare,
    "users": can_be_others,
    "root": lambda: os.geteuid() == 0,
    "no-root": lambda: os.geteuid() != 0,
    "ipv6": has_ipv6,
    "dev-full": lambda: os.access("/dev/full", os.W_OK),
    "children": pathlib.Path("/proc/thread-self/children").exists,
    "kernel-6.12": lambda: tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 12),
    "no-device": lambda: not has_device(),
    "x86-64": lambda: os.uname().machine == "x86_64",
    "soak": lambda: bool(os.environ.get("SOAK")),
    "python-vfork": lambda: sys.version_info >= (3, 10),
}
REASONS = {
    "namespaces": "they cannot be made here",
    "users": "tests do not run as root, and no user namespace with more users can be made",
    "root": "the test needs root, to become another user or to mount",
    "no-root": "root may read and write everything",
    "ipv6": "no IPv6 on the loopback interface",
    "children": "the kernel does not list the children of a process",
    "kernel-6.12": "the kernel does not let a process run first",
    "soak": "long, SOAK=1 runs it",
}


def check_marks(item):
    """For the hook in conftest.py."""
    for mark in item.iter_markers("needs"):
        needs(*mark.args)
    for mark in item.iter_markers("lacks"):
        lacks(*mark.args)
