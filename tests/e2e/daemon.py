# SPDX-License-Identifier: MulanPSL-2.0
"""A daemon for a test, on ports that the kernel chose.

    with Daemon(build, tmp_path) as d:
        d.call({"fn": "getVersion"})

The IPC monitor has the socket directory d.ipc_dir (its file: d.ipc_dir / "dynolog"), so that
daemons of different tests do not meet there. The global endpoints, abstract and in the home
directory, can be had by one daemon of a network namespace only: tests that need them say
namespace=True, and are skipped where no namespace can be made. Clients are then started with
d.popen() or d.run(), which run a program beside the daemon.

With DAEMON_USER=61010 in the environment every daemon goes on as that user (--user), so that any test
can be run against the sandbox; the tests run as root then.
"""

import contextlib
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import tempfile

import rpc_client
from capabilities import lacks, needs
from users import as_user
from waiting import wait_until

START_S = 30
SANDBOX = int(os.environ.get("DAEMON_USER", 0))


def need_namespaces(*flags):
    """Ends the test where no such namespaces (flags of unshare) can be made, or not entered."""
    for program in ("unshare", "nsenter", *(["ip"] if "-n" in flags else [])):
        needs(program)
    needs("namespaces", *flags)


def free_port():
    """A port for a program that does not take 0. The kernel gives it to nobody meanwhile: it is
    not one of those that are chosen."""
    chosen = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    first, last = map(int, chosen)
    for _ in range(1000):
        port = random.randrange(5000, 65536)
        with socket.socket() as s, contextlib.suppress(OSError):
            if not first <= port <= last:
                s.bind(("127.0.0.1", port))
                return port
    lacks("free-port", "none found")


def sanitised(build):
    """Whether the program was built with a sanitizer: its memory then says little."""
    return b"__asan_" in (pathlib.Path(build) / "bin" / "sonde").read_bytes()


def open_to_others(path):
    """Other users can enter the directories that lead there."""
    for p in (path, *path.parents):
        if p.stat().st_uid == os.geteuid() and not p.stat().st_mode & 0o001:
            p.chmod(p.stat().st_mode | 0o011)


class Daemon:
    def __init__(
        self,
        build,
        tmp_path,
        *flags,
        env=None,
        ipc=False,
        namespace=False,
        defaults=True,
        program="sonde",
        wait=True,
        user=None,
        **popen,
    ):
        """flags: further options. ipc: with the IPC monitor. defaults=False: only the given flags.
        program: "dynolog" starts it by that name. wait=False: do not wait until it listens.
        user: whose it is (users.py); tmp_path is then below users.dir."""
        if namespace:
            need_namespaces("-n")
        self.build = pathlib.Path(build).resolve()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="daemon_", dir=tmp_path))
        self.home = self.dir / "home"
        self.home.mkdir()
        # paths of sockets are short: 107 bytes
        self.ipc_dir = pathlib.Path(tempfile.mkdtemp(prefix="sonde_ipc_"))
        self.log_path = self.dir / "stderr"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            **{k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")},
            **(env or {}),
        }
        words = [str(self.build / "bin" / program)] + (["daemon"] if program == "sonde" else [])
        if defaults:
            words += ["--port", "0", "--http-port", "0"]
            if ipc or namespace:
                words += ["--enable-ipc-monitor", "--ipc-socket-dir", str(self.ipc_dir)]
                words += [] if namespace else ["--ipc-dir-only"]
        words += map(str, flags)
        if user:
            words = as_user(user, words)
            user.takes(self.dir, self.home, self.ipc_dir)
        self.namespace = namespace
        if namespace:
            words = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *words]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                words, cwd=self.dir, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                **popen,
            )  # fmt: skip
        self._ports = {}
        if wait:
            try:
                self.wait_port()
            except BaseException:
                self.stop()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_log(self, pattern, seconds=START_S):
        """Waits until the log has a line with this regular expression; gives the match."""

        def find():
            ended = self.process.poll() is not None
            m = re.search(pattern, self.log())
            assert m or not ended, f"the daemon ended with {self.process.returncode}:\n{self.log()}"
            return m

        return wait_until(find, lambda: f"'{pattern}' in the log:\n{self.log()}", seconds, 0.005)

    def _port(self, name, pattern):
        if name not in self._ports:
            self._ports[name] = int(self.wait_log(pattern).group(1))
        return self._ports[name]

    def wait_port(self):
        return self.port

    @property
    def port(self):
        return self._port("rpc", r"control RPC listens on \S+:(\d+)")

    @property
    def http_port(self):
        return self._port("http", r"http port = (\d+)")

    def connect(self, host="127.0.0.1", **kw):
        """A connection that stays (rpc_client.Connection)."""
        return rpc_client.Connection(self.port, host, **kw)

    def call(self, request, **kw):
        assert not self.namespace, "not reachable from here: use sonde ctl through run()"
        return rpc_client.call(self.port, request, **kw)

    def popen(self, *words, env=None, **kw):
        """Starts a program beside the daemon: in its namespace, with its home."""
        words = list(map(str, words))
        if self.namespace:
            words = ["nsenter", "-t", str(self.pid), "-n", "--", *words]
        return subprocess.Popen(words, cwd=self.dir, env={**self.env, **(env or {})}, **kw)

    def run(self, *words, env=None, timeout=60, **kw):
        words = list(map(str, words))
        if self.namespace:
            words = ["nsenter", "-t", str(self.pid), "-n", "--", *words]
        return subprocess.run(
            words, cwd=self.dir, env={**self.env, **(env or {})}, capture_output=True, text=True,
            timeout=timeout, **kw,
        )  # fmt: skip

    def ctl(self, *words, **kw):
        """sonde ctl against this daemon."""
        return self.run(self.build / "bin" / "sonde", "ctl", "--port", self.port, *words, **kw)

    def reload(self):
        self.process.send_signal(1)

    def stop(self, seconds=30):
        """Ends it as a service manager would; gives its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.ipc_dir, ignore_errors=True)
        return self.process.returncode
