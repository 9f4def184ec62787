# SPDX-License-Identifier: MulanPSL-2.0
"""Python programs for the sampler (tests/targets/python), and what sonde reports about them."""

import json
import os
import pathlib
import signal
import subprocess

from waiting import wait_until

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "targets" / "python"
LIMIT_S = 30


class Program:
    """A script in an interpreter; `with` ends it. under: words of a program that starts it."""

    def __init__(self, python, script, *words, under=()):
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        env.update(PYTHONIOENCODING="utf-8", PYTHONDONTWRITEBYTECODE="1", LC_ALL="C.UTF-8")
        self.process = subprocess.Popen(
            [*under, str(python.path), str(SCRIPTS / script), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            env=env,
        )
        self.pid = self.process.pid

    def child(self):
        """The pid of the process that it started."""
        return int(pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text())

    def line(self):
        """The next line it prints."""
        text = self.process.stdout.readline()
        assert text, self.process.communicate()[1]
        return text.rstrip("\n")

    def ready(self):
        """What it prints before, and the words behind, "ready"."""
        before = []
        while True:
            text = self.line()
            if text.split()[:1] == ["ready"]:
                return before, text.split()[1:]
            before.append(text)

    def say(self, text=""):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def wait_for(self, path):
        """A file that it writes as JSON."""

        def written():
            there = os.path.exists(path)
            assert there or self.process.poll() is None, self.process.communicate()[1]
            return there

        wait_until(written, f"the program to write {path}", LIMIT_S)
        with open(path, encoding="utf-8", errors="surrogatepass") as f:
            return json.load(f)

    def result(self):
        """Its status and output once it has ended by itself."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, out, err

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def snap(build, pid, *more):
    """Threads by system id, frames outermost first as (name, file, line)."""
    words = ["snap", "--json", "--all-threads", "--exact", "--top", "0", "-p", str(pid), *more]
    done = subprocess.run(
        [str(build / "bin" / "sonde"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    threads = {}
    for group in json.loads(done.stdout.decode("utf-8"))["groups"]:
        frames = [(f["name"], f["file"], f["line"]) for f in reversed(group["frames"])]
        for thread in group["threads"]:
            thread["frames"] = frames
            threads[thread["tid"]] = thread
    return threads


class Sampling:
    """`sonde stack` on a process, until it is ended or ends."""

    def __init__(self, build, pid, out, *more, hz=2000):
        every = ["-i", repr(1 / hz), "-o", str(out), "--all-threads"]
        self.process = subprocess.Popen(
            [str(build / "bin" / "sonde"), "stack", "-p", str(pid), *every, *map(str, more)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )

    def __enter__(self):
        return self

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.result()

    def result(self):
        try:
            out, err = self.process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, out, err

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
