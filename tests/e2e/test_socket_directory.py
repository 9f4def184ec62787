# SPDX-License-Identifier: MulanPSL-2.0
"""The directory of sockets is open to every user, and the daemon's name in it is the daemon's: also
while it is away, however it ended, and against whoever is faster."""

import contextlib
import os
import signal
import socket
import stat
import threading

import fabric_client as fc
import pytest
from daemon import Daemon
from waiting import wait_until

OWN = ("--port", "0", "--http-port", "0", "--enable-ipc-monitor", "--ipc-dir-only")


def serve(users, where, *flags, user=None, **kw):
    flags = (*OWN, "--ipc-socket-dir", where, *flags)
    return Daemon(users.build, users.dir, *flags, defaults=False, user=user or users.root, **kw)


def refused(users, where, **kw):
    """What a daemon says that ends because it cannot serve there."""
    with serve(users, where, wait=False, **kw) as d:
        assert d.process.wait(30) == 1, d.log()
        return d.log()


@pytest.fixture
def where(users):
    """A directory as daemons make it."""
    path = users.dir / "ipc"
    path.mkdir()
    path.chmod(0o1777)
    return path


def bind(path):
    """A datagram socket of that name; None: it could not be had."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        s.bind(str(path))
        return s
    except OSError:
        s.close()


def owner(users, path):
    return users.root.do(lambda: path.lstat().st_uid)


class Squatter:
    """Tries to take the name, as fast as it can, from now on."""

    def __init__(self, user, path):
        self.path = path
        self.pid = os.fork()
        if self.pid:
            return
        try:
            user.become()
            s, name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), str(path)
            while True:
                with contextlib.suppress(OSError):
                    s.bind(name)
                    signal.pause()
        finally:
            os._exit(0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@contextlib.contextmanager
def watched(path):
    """A list that is empty as long as there always is something of that name."""
    missing, ended = [], threading.Event()

    def watch():
        while not ended.is_set() and not missing:
            if not os.path.lexists(path):
                missing.append(path)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield missing
    finally:
        ended.set()
        watcher.join()


def test_nobody_takes_the_name_of_a_daemon_that_is_away(users, where):
    name = where / "dynolog"
    with serve(users, where):
        pass
    with Squatter(users.bob, name), watched(name) as missing:
        for end in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
            before = name.stat().st_ino
            with serve(users, where) as d:
                assert name.stat().st_ino != before and owner(users, name) == users.root.uid
                assert stat.S_IMODE(name.stat().st_mode) == 0o666
                with fc.Client(name) as c:
                    assert c.request() == ""
                d.process.send_signal(end)
                d.process.wait()
            # as an absent daemon is: not somebody who never answers
            with fc.Client(name) as c, pytest.raises(ConnectionRefusedError):
                c.sock.sendto(b"", c.server)
            for take in (name.unlink, lambda: name.rename(where / "other")):
                with pytest.raises(PermissionError):
                    users.bob.do(take)
    assert not missing
    assert [p.name for p in where.iterdir()] == ["dynolog"]


def test_a_new_directory_is_opened_when_the_daemon_is_in_it(users):
    for i in range(10):
        where = users.dir / f"new{i}"
        with Squatter(users.bob, where / "dynolog"):
            with serve(users, where) as d:
                assert owner(users, where / "dynolog") == users.root.uid, d.log()
                assert stat.S_IMODE(where.stat().st_mode) == 0o1777
                assert users.alice.do(lambda where=where: bool(bind(where / "dynoconfigclient1")))


def test_a_runtime_directory_is_opened_as_one_that_it_made(users):
    """systemd makes it 0755 at each start."""
    where = users.dir / "run"
    where.mkdir(mode=0o755)
    for _ in range(2):
        with serve(users, where, env={"RUNTIME_DIRECTORY": f"/nothing:{where}"}):
            assert stat.S_IMODE(where.stat().st_mode) == 0o1777
        where.chmod(0o755)


def test_a_name_that_another_user_has_is_not_served(users, where):
    name = where / "dynolog"
    users.bob.do(lambda: bool(bind(name)))  # dead by now
    log = refused(users, where)
    assert f"'{name}' belongs to another user (uid {users.bob.uid})" in log, log
    assert owner(users, name) == users.bob.uid
    name.unlink()
    with serve(users, where):
        log = refused(users, where, user=users.alice)
        assert f"'{name}' belongs to another user (uid {users.root.uid})" in log, log
        assert f"another daemon listens on '{name}'" in refused(users, where)


def test_a_directory_of_another_user_is_not_served(users):
    where = users.bob.mkdir("ipc", 0o1777)
    log = refused(users, where)
    assert f"'{where}' belongs to another user (uid {users.bob.uid})" in log, log
    assert not list(where.iterdir())


def test_a_directory_without_the_sticky_bit_gets_it(users):
    where = users.dir / "shared"
    where.mkdir()
    where.chmod(0o777)
    with serve(users, where):
        assert stat.S_IMODE(where.stat().st_mode) == 0o1777
    # of root, and not ours: all that can be done is to say it
    where = users.dir / "emptyDir"
    where.mkdir()
    where.chmod(0o777)
    with serve(users, where, user=users.alice) as d:
        d.wait_log(f"every user can replace the daemon's socket in '{where}'")


def test_a_name_that_changed_hands(users, where):
    """By root, who may: it is said who has it, and taken back when it is free."""
    name, other = where / "dynolog", where / "other"
    with serve(users, where) as d:
        users.bob.do(lambda: bool(bind(other)))
        other.rename(name)
        d.wait_log(f"'{name}' was replaced by user {users.bob.uid}")
        assert owner(users, name) == users.bob.uid
        name.unlink()
        wait_until(lambda: name.exists() and owner(users, name) == users.root.uid, "the daemon")
        with fc.Client(name) as c:
            assert c.request() == ""


def test_a_daemon_that_gave_up_root_comes_back(users, where):
    """Its socket is root's, or that of the user it went on as, if it had to be made again."""
    name, other = where / "dynolog", 61010
    for _ in range(2):
        with serve(users, where, "--user", other):
            assert owner(users, name) == users.root.uid
            name.unlink()
            wait_until(lambda: name.exists() and owner(users, name) == other, "a new one")
            with fc.Client(name) as c:
                assert c.request() == ""
