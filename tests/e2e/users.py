# SPDX-License-Identifier: MulanPSL-2.0
"""Two ordinary users of the machine, and root: for what one must not be able to do to another's jobs.

    def test_story(users):
        users.alice.run(users.build / "bin/sonde", "mem", ...)     as subprocess.run(), with his home
        users.bob.popen("sleep", 60)                               as subprocess.Popen()
        users.bob.do(lambda: daemon.call({...}))                   a function, in a process of his
        as_user(users.bob, ["sonde", "top"])                       the words, for whoever starts them
        users.alice.mkdir("out", mode=0o777)                       a directory in his home

They have numbers and homes, but no names on the machine: nothing is added to /etc/passwd. The homes
are below users.dir, which every user may enter and which is gone after the test; users.build is the
build directory, or a copy of it where other users may not read it.

Where the tests do not run as root, the users are those of a user namespace, if newuidmap and a range
in /etc/subuid allow one; root is then the root of that namespace, and the user of the tests outside
of it. Elsewhere the tests that ask for users are skipped (capability `users`).
"""

import atexit
import contextlib
import ctypes
import functools
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import traceback

from capabilities import lacks, needs

ALICE, BOB = 61001, 61002
PROJECT = 61100  # a group that both can be in: alice.run(…, groups=[PROJECT])
BUILT = ("bin", "lib", "python", "sim", "targets")
CLONE_NEWUSER = 0x10000000


class User:
    def __init__(self, users, name, uid):
        self.users, self.name, self.uid = users, name, uid
        self.home = users.dir / name
        self.home.mkdir(mode=0o755)
        self.takes(self.home)

    def takes(self, *paths):
        """Makes him the owner."""
        words = ["chown", "-h", f"{self.uid}:{self.uid}", "--", *map(str, paths)]
        subprocess.run(self.users.inside(words), check=True)

    def mkdir(self, name, mode=0o755):
        path = self.home / name
        self.do(lambda: (path.mkdir(), path.chmod(mode)))
        return path

    def env(self, **more):
        """An environment of his own, with a simulated machine of his own."""
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "SIM_NPU_STATE": str(self.home / "npu"),
            **{k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")},
        }
        env.update({k: str(v) for k, v in more.items()})
        return env

    def command(self, words, env, groups):
        """Words and environment; what is for the loader is not for the one who becomes this user."""
        env = self.env(**(env or {}))
        loader = [f"{k}={env.pop(k)}" for k in list(env) if k.startswith("LD_")]
        words = ["env", *loader, *words] if loader else words
        return as_user(self, words, groups), env

    def run(self, *words, env=None, groups=(), **kw):
        kw = {"capture_output": True, "text": True, "timeout": 60, "cwd": self.home, **kw}
        words, env = self.command(words, env, groups)
        return subprocess.run(words, env=env, **kw)

    def popen(self, *words, env=None, groups=(), **kw):
        """Whatever is still running at the end of the test is killed."""
        kw = {"cwd": self.home, "stdin": subprocess.DEVNULL, **kw}
        words, env = self.command(words, env, groups)
        self.users.started.append(subprocess.Popen(words, env=env, **kw))
        return self.users.started[-1]

    def do(self, function, groups=()):
        """What the function gives (anything that can be pickled); what it raises is raised here."""
        sys.stdout.flush()
        sys.stderr.flush()
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.close(read)
                self.become(groups)
                try:
                    answer = pickle.dumps((function(), None))
                except BaseException as error:
                    answer = pickle.dumps((None, (error, traceback.format_exc())))
                with open(write, "wb") as f:
                    f.write(answer)
            finally:
                os._exit(0)
        os.close(write)
        with open(read, "rb") as f:
            answer = f.read()
        os.waitpid(pid, 0)
        assert answer, f"{self.name} ended without an answer"
        value, failed = pickle.loads(answer)
        if failed:
            error, trace = failed
            raise error from RuntimeError(f"as {self.name}:\n{trace}")
        return value

    def become(self, groups=()):
        """In a process that was forked for it: there is no way back."""
        if self.users.keeper:
            with open(f"/proc/{self.users.keeper.pid}/ns/user") as f:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(f.fileno(), CLONE_NEWUSER):
                    raise OSError(ctypes.get_errno(), "setns")
        os.setgroups(list(groups))
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)
        os.environ["HOME"] = str(self.home)
        os.umask(0o022)


class Users:
    def __init__(self, build):
        needs("users")
        self.started, self.keeper = [], None
        if os.geteuid():
            self.keeper = start_namespace()
        # not below pytest's directory, which is closed to others
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="sonde-users-"))
        self.dir.chmod(0o755)
        try:
            self.root = User(self, "root", 0)
            self.alice, self.bob = User(self, "alice", ALICE), User(self, "bob", BOB)
            self.build = self.shared(build)
        except BaseException:
            self.end()
            raise

    def inside(self, words):
        """The words, to be run by who may become any user."""
        if not self.keeper:
            return list(words)
        return ["nsenter", "-t", str(self.keeper.pid), "-U", "--", *words]

    def shared(self, build):
        if self.alice.run("test", "-x", build / "bin/sonde").returncode == 0:
            return build
        copy = copy_build(build)
        if self.alice.run("test", "-x", copy / "bin/sonde").returncode:
            lacks("shared-build", "other users may run nothing in the directory of temporary files")
        return copy

    def end(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
                p.wait()
        subprocess.run(self.inside(["rm", "-rf", str(self.dir)]), check=True)
        if self.keeper:
            self.keeper.kill()
            self.keeper.wait()


def as_user(user, words, groups=()):
    """The words that run these as that user: a User, or a number where the tests run as root."""
    words = list(map(str, words))
    uid = user if isinstance(user, int) else user.uid
    own = f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", own, "--", *words]
    return command if isinstance(user, int) else user.users.inside(command)


def start_namespace():
    """A process that keeps a user namespace: 0 is the user of the tests, the others are his range."""
    words = ["unshare", "--user", "--map-root-user", "--map-auto", "sh", "-c"]
    p = subprocess.Popen([*words, "echo up; exec sleep 86400"], stdout=subprocess.PIPE,
                         stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    if p.stdout.readline() != b"up\n":
        p.kill()
        p.wait()
        return None
    return p


@functools.lru_cache(maxsize=None)
def can_be_others():
    """The probe of the capability `users`."""
    if not shutil.which("setpriv"):
        return False
    if os.geteuid() == 0:
        return subprocess.run(as_user(ALICE, ["true"]), capture_output=True).returncode == 0
    keeper = shutil.which("newuidmap") and shutil.which("nsenter") and start_namespace()
    if not keeper:
        return False
    enter = ["nsenter", "-t", str(keeper.pid), "-U", "--"]
    done = subprocess.run([*enter, *as_user(BOB, ["true"])], capture_output=True)
    keeper.kill()
    keeper.wait()
    return done.returncode == 0


@functools.lru_cache(maxsize=None)
def copy_build(build):
    """The parts of a build that programs use, where every user can read them."""
    copy = pathlib.Path(tempfile.mkdtemp(prefix="sonde-build-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    for name in BUILT:
        with contextlib.suppress(FileNotFoundError):
            shutil.copytree(build / name, copy / name, symlinks=True)
    subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
    return copy
