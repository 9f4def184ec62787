# SPDX-License-Identifier: MulanPSL-2.0
"""Programs that use a real PyTorch, each forked from one process that has imported it, which takes
seconds. The package of ours is imported by the programs; they end as others do.

    from torch_forks import forks  # a fixture
    forks.of(torch).run(["program.py", "word"], cwd=…, env=…)
"""

import json
import os
import select
import signal
import subprocess
import tempfile

import pytest

from recording import clean_env

# The programs are what comes behind the loop: their interpreter ends as that of any program.
SERVER = """
import gc, json, os, sys
import torch
if torch.__version__ >= "2":
    import torch._dynamo  # else every optimizer does it
gc.freeze()  # a collection would copy every page
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
else:
    os._exit(0)
for fd, name in enumerate(asked["files"]):
    os.dup2(os.open(name, os.O_RDWR), fd)
os.chdir(asked["cwd"])
os.environ.clear()
os.environ.update(asked["env"])
sys.argv = asked["words"]
sys.path[:0] = [p for p in asked["env"].get("PYTHONPATH", "").split(":") if p]
if sys.argv[0] == "-c":
    code, name = sys.argv.pop(1), "<string>"
else:
    code, name = open(sys.argv[0]).read(), sys.argv[0]
    globals()["__file__"] = name
    sys.path.insert(0, os.path.dirname(os.path.abspath(name)))
for other in ("asked", "child", "line", "fd", "gc", "json", "other"):
    globals().pop(other, None)
exec(compile(code, name, "exec"))
"""


class Forker:
    def __init__(self, torch, env):
        self.process = subprocess.Popen(
            [torch.path, "-c", SERVER],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def answer(self, seconds):
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise subprocess.TimeoutExpired(self.process.args, seconds)
        line = self.process.stdout.readline()
        assert line, "the process that forks has ended"
        return int(line)

    def run(self, words, cwd, env, timeout=120):
        """subprocess.CompletedProcess of a program and its arguments, or of -c and code."""
        with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
            words, files = [str(w) for w in words], [os.devnull, out.name, err.name]
            asked = {"words": words, "cwd": str(cwd), "env": env, "files": files}
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            child = None
            try:
                child = self.answer(timeout)  # it imports torch before its first
                status = self.answer(timeout)
            except BaseException:  # also a deadline: what comes from this one now is not known any more
                self.process.kill()
                if child:
                    os.kill(child, signal.SIGKILL)
                raise
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            return subprocess.CompletedProcess(words, code, out.read(), err.read())

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Forks:
    """One for each torch, when it is first asked for."""

    def __init__(self, env):
        self.env, self.made = env, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for forker in self.made.values():
            forker.end()

    def of(self, torch):
        if torch not in self.made or self.made[torch].process.poll() is not None:
            self.made[torch] = Forker(torch, self.env)
        return self.made[torch]


@pytest.fixture(scope="module")
def forks(tmp_path_factory):
    with Forks(clean_env(tmp_path_factory.mktemp("forks"), OMP_NUM_THREADS=1)) as made:
        yield made
