# SPDX-License-Identifier: MulanPSL-2.0
"""Device time by module and line: a real PyTorch on the CPU, each of whose operators launches a kernel
on the simulated driver, as those of a GPU do."""

import collections
import json
import os
import pathlib
import subprocess

import pytest
from daemon import Daemon
from monitored import dyno, lines, state
from torches import a_torch, every_torch
from waiting import wait_until

# Installed, and so none of the user's own lines.
LAUNCHER = '''
import ctypes

from torch.utils._python_dispatch import TorchDispatchMode

ctypes.CDLL("libcuda.so").cuInit(0)
cupti = ctypes.CDLL("libcupti.so")
names = {}


class Launches(TorchDispatchMode):
    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        name = str(operator).encode()
        text = names.setdefault(name, ctypes.create_string_buffer(name))
        cupti.simCudaKernel(text, 0, 7, ctypes.c_uint64(1000))
        return operator(*args, **(kwargs or {}))
'''
# The same on the simulated NPU.
ASCEND = '''
import ctypes

from torch.utils._python_dispatch import TorchDispatchMode

ctypes.CDLL("libascendcl.so", mode=ctypes.RTLD_GLOBAL)
assert ctypes.CDLL(None).aclInit(None) == 0
runtime = ctypes.CDLL("libruntime.so")
runtime.sim_kernel_register.restype = ctypes.c_void_p
assert runtime.rtSetDevice(0) == 0
stream = ctypes.c_void_p()
assert runtime.rtStreamCreate(ctypes.byref(stream), 0) == 0
kernels = {}


class Launches(TorchDispatchMode):
    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        name = str(operator)
        if name not in kernels:
            made = runtime.sim_kernel_register(name.encode(), ctypes.c_uint64(1000), None)
            kernels[name] = ctypes.c_void_p(made)
        assert runtime.rtKernelLaunch(kernels[name], 8, None, 0, None, stream) == 0
        return operator(*args, **(kwargs or {}))
'''
TRAIN = '''
import queue
import sys
import threading
import time

import torch
from torch.utils.checkpoint import checkpoint
from launcher import Launches


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)
        self.act = torch.nn.GELU()

    def forward(self, x):
        y = self.fc(x)  # fc
        z = torch.sin(y)  # sin
        return x + self.act(z)  # act


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.h = torch.nn.ModuleList([Block() for _ in range(3)])
        self.tail = Block()
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x):
        for block in self.h:
            x = block(x)  # block
        x = checkpoint(self.tail, x, use_reentrant=False)  # tail
        return self.head(x)  # head


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.0, foreach=False)


def train_step():
    loss = net(torch.ones(4, 8)).pow(2).mean()  # loss
    loss.backward()  # backward
    optimizer.step()  # optimizer
    optimizer.zero_grad()


def hooks():
    module = torch.nn.modules.module
    both = [*module._global_forward_hooks.values(), *module._global_forward_pre_hooks.values()]
    return sum(hook.__module__ == "sonde._attribute" for hook in both)


def listen():
    for line in sys.stdin:
        asked.put(line)
    asked.put("")


asked = queue.Queue()
threading.Thread(target=listen, daemon=True).start()
with Launches():
    while True:
        for _ in range(5):
            train_step()
            time.sleep(0.002)
        if not asked.empty():
            if not asked.get():
                break
            print(hooks(), flush=True)
print("done", float(net.head.weight.sum()), flush=True)
'''


class Job:
    def __init__(self, build, daemon, tmp_path, torch, launcher=LAUNCHER, **more):
        packages = tmp_path / "site-packages"
        packages.mkdir()
        (packages / "launcher.py").write_text(launcher)
        self.program = tmp_path / "train.py"
        self.program.write_text(TRAIN)
        self.out = tmp_path / "out"
        self.err = open(tmp_path / "job.err", "w+")
        env = dict(
            os.environ,
            CUDA_INJECTION64_PATH=str(build / "lib" / "libsonde_monitor.so"),
            LD_LIBRARY_PATH=str(build / "sim"),
            PYTHONPATH=str(packages),
            MSMONITOR_USE_DAEMON="1",
            KINETO_IPC_SOCKET_DIR=str(daemon.ipc_dir),
            **more,
        )
        self.process = subprocess.Popen(
            [torch.path, self.program],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.err,
            text=True,
            cwd=tmp_path,
        )

    def hooks(self):
        """How many are there of ours, some steps from now."""
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def line(self, comment):
        text = self.program.read_text().splitlines()
        return next(i for i, line in enumerate(text, 1) if line.endswith(f"# {comment}"))

    def place(self, function, comment):
        return f"{function} ({self.program}:{self.line(comment)})"

    def rows(self):
        files = sorted(pathlib.Path(self.out).glob("*.jsonl"))
        return [row for f in files for row in lines(f) if row["kind"] == "Kernel"]

    def end(self):
        self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.wait(30)
        self.err.seek(0)
        assert self.process.returncode == 0 and "done" in rest, self.err.read()
        self.err.close()


def owners(rows, operator):
    """How often it ran for (module, pass, line)."""
    return collections.Counter(
        (r.get("module", ""), r.get("pass"), r.get("line"))
        for r in rows
        if r["name"] == f"aten.{operator}"
    )


def check_rows(job, rows):
    fc, sin, act = (job.place("Block.forward", c) for c in ("fc", "sin", "act"))
    head, loss = job.place("Net.forward", "head"), job.place("train_step", "loss")
    blocks = ["h.0", "h.1", "h.2", "tail"]
    assert all("pass" in r for r in rows)
    gemm = owners(rows, "addmm.default")
    assert set(gemm) == {(f"{b}.fc", "forward", fc) for b in blocks} | {("head", "forward", head)}
    # What is computed again for its gradients is the module's own.
    assert gemm["tail.fc", "forward", fc] > 1.5 * gemm["h.0.fc", "forward", fc]
    assert set(owners(rows, "sin.default")) == {(b, "forward", sin) for b in blocks}
    assert set(owners(rows, "cos.default")) == {(b, "backward", sin) for b in blocks}
    assert set(owners(rows, "gelu.default")) == {(f"{b}.act", "forward", act) for b in blocks}
    assert set(owners(rows, "gelu_backward.default")) == {
        (f"{b}.act", "backward", act) for b in blocks
    }
    assert set(owners(rows, "mm.default")) == {(f"{b}.fc", "backward", fc) for b in blocks} | {
        ("head", "backward", head)
    }
    assert set(owners(rows, "mean.default")) == {("", "forward", loss)}
    assert set(owners(rows, "add_.Tensor")) >= {
        ("optimizer", "forward", job.place("train_step", "optimizer"))
    }
    assert {r["moduleClass"] for r in rows if r.get("module") == "h.1.fc"} == {"Linear"}
    assert {r["model"] for r in rows if r.get("module") == "h.1.fc"} == {"Net"}


def check_show(build, job, tmp_path):
    def show(*words):
        return subprocess.run(
            [build / "bin" / "sonde", "activity", "show", *words, job.out],
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    by_module = json.loads(show("--by=module", "--json", "--top=100"))
    groups = {(g["name"], g["class"]): g for g in by_module["groups"]}
    assert by_module["attributed_share"] == 1.0
    assert groups["h.*.fc", "Linear"]["count"] == 3 and groups["tail.fc", "Linear"]["count"] == 1
    assert groups["h.*.fc", "Linear"]["backward_ns"] > groups["h.*.fc", "Linear"]["forward_ns"] > 0
    assert sum(g["total_ns"] for g in by_module["groups"]) == by_module["total_ns"]
    assert "h.*.fc" in show("--by=module") and "100.0 % of the devices' time is attr" in show(
        "--by=line"
    )
    depth = json.loads(show("--by=module", "--depth=1", "--json"))
    assert {g["name"] for g in depth["groups"]} >= {"h", "tail", "head", "optimizer"}
    trace = tmp_path / "trace.json"
    words = ["activity", "export", "--format=chrome", "-o", trace, job.out]
    subprocess.run([build / "bin" / "sonde", *words], check=True, capture_output=True)
    events = json.loads(trace.read_text())["traceEvents"]
    assert "stream 7, modules" in {e["args"].get("name") for e in events if e["ph"] == "M"}
    kernel = next(e for e in events if e.get("cat") == "kernel" and e["name"] == "aten.sin.default")
    assert kernel["args"]["line"] == job.place("Block.forward", "sin")


def is_current(param):
    """Older versions do not say whose gradient is computed."""
    return not getattr(param.values[0], "version", "2").startswith("1.")


@pytest.mark.parametrize("torch", list(filter(is_current, every_torch())))
def test_modules_and_lines(build, tmp_path, torch):
    with Daemon(build, tmp_path, ipc=True) as daemon:
        job = Job(build, daemon, tmp_path, torch)
        assert job.hooks() == 0
        wait_until(lambda: daemon.call({"fn": "getStatus"})["npumonitor"] == "Idle", "the job")

        # sonde top has a lease: it attributes as long as it is there.
        words = ["top", "--port", str(daemon.port), "--by", "module", "--once", "--json"]

        def kernels():
            """On a busy machine a step may take longer than the interval of a report."""
            said = subprocess.run(
                [build / "bin" / "sonde", *words], capture_output=True, text=True, timeout=60
            )
            assert said.returncode == 0, said.stdout + said.stderr
            found = json.loads(said.stdout)["kernels"]
            assert {k["kind"] for k in found} == {"Module"}
            calls = {k["name"]: k["calls"] for k in found}
            return {"h.*.fc", "head"} <= set(calls) and calls

        calls = wait_until(kernels, "a report with a whole step", 60)
        assert calls["h.*.fc"] > calls["head"]
        wait_until(lambda: job.hooks() == 0, "the hooks are gone")

        words = ["--mspti-activity-kind", "Kernel", "--log-file", job.out, "--export-type", "Jsonl"]
        dyno(build, daemon, "npu-monitor", "--npu-monitor-start", "--attribute", *words)
        wait_until(lambda: job.hooks() == 2, "the hooks")
        for _ in range(10):
            job.hooks()
        dyno(build, daemon, "npu-monitor", "--npu-monitor-stop")
        wait_until(lambda: state(daemon) == "Idle", "it is off")
        wait_until(lambda: job.hooks() == 0, "the hooks are gone")
        job.end()
    rows = job.rows()
    begun = next(i for i, r in enumerate(rows) if r.get("module") == "h.0.fc")
    check_rows(job, rows[begun:])
    (tmp_path / "out").rename(tmp_path / "all")
    job.out = tmp_path / "out"
    job.out.mkdir()
    kept = "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows[begun:])
    (job.out / f"msmonitor_{job.process.pid}_20260101000000000_0.jsonl").write_text(kept)
    check_show(build, job, tmp_path)


# Which kinds of calls (of the driver, of the runtime) were on as a whole while something was launched.
# PyTorch has loaded the library before it initialises the driver.
WATCHED = 'import ctypes\nctypes.CDLL("libcupti.so")\n' + LAUNCHER + """
import atexit, os
kinds = set()
launch = Launches.__torch_dispatch__

def watch(self, *args, **kwargs):
    kinds.update(kind for kind in (4, 5) if cupti.simCuptiEnabled(kind))
    return launch(self, *args, **kwargs)

Launches.__torch_dispatch__ = watch
atexit.register(lambda: open("kinds", "w").write(str(sorted(kinds))))
"""


@pytest.mark.parametrize("library", ["reports single calls", "knows kinds only"])
def test_launches_that_were_prepared(build, tmp_path, library):
    """Where the program was started for it launches are switched on before there is a context, and no kinds; a
    library that does not report them so has its kinds on as soon as that is noticed."""
    kinds_only = library == "knows kinds only"
    more = {"SONDE_PREPARE_ATTRIBUTE": "1", **({"SIM_CUPTI_KINDS_ONLY": "1"} if kinds_only else {})}
    with Daemon(build, tmp_path, ipc=True) as daemon:
        job = Job(build, daemon, tmp_path, a_torch(), WATCHED, **more)
        assert job.hooks() == 0
        wait_until(lambda: daemon.call({"fn": "getStatus"})["npumonitor"] == "Idle", "the job")
        words = ["--mspti-activity-kind", "Kernel", "--log-file", job.out, "--export-type", "Jsonl"]
        dyno(build, daemon, "npu-monitor", "--npu-monitor-start", "--attribute", *words)
        wait_until(lambda: job.hooks() == 2, "the hooks")
        wait_until(lambda: job.hooks() and any("pass" in r for r in job.rows()), "an owner", 60)
        for _ in range(12 if kinds_only else 5):
            job.hooks()
        rows = end(build, daemon, job)
    unknown = max([-1, *(i for i, r in enumerate(rows) if "pass" not in r)])
    begun = next(i for i, r in enumerate(rows) if i > unknown and r.get("module") == "h.0.fc")
    check_rows(job, rows[begun:])
    assert (tmp_path / "kinds").read_text() == ("[4, 5]" if kinds_only else "[]")


def begin(build, daemon, tmp_path, *preloaded):
    libraries = [build / "lib/libsonde_monitor.so", *preloaded]
    more = {"LD_PRELOAD": ":".join(map(str, libraries)), "SIM_NPU_STATE": str(tmp_path / "npu")}
    job = Job(build, daemon, tmp_path, a_torch(), ASCEND, **more)
    wait_until(lambda: daemon.call({"fn": "getStatus"})["npumonitor"] == "Idle", "the job")
    words = ["--mspti-activity-kind", "Kernel", "--log-file", job.out, "--export-type", "Jsonl"]
    dyno(build, daemon, "npu-monitor", "--npu-monitor-start", "--attribute", *words)
    return job


def end(build, daemon, job):
    for _ in range(5):
        job.hooks()
    dyno(build, daemon, "npu-monitor", "--npu-monitor-stop")
    wait_until(lambda: state(daemon) == "Idle", "it is off")
    job.end()
    return job.rows()


def test_on_the_simulated_npu(build, tmp_path):
    """MSPTI calls back for the calls that launch; forward passes, which every PyTorch tells."""
    with Daemon(build, tmp_path, ipc=True) as daemon:
        job = begin(build, daemon, tmp_path, build / "sim/libmspti.so")
        wait_until(lambda: job.hooks() == 2, "the hooks")
        rows = end(build, daemon, job)
    fc, head = job.place("Block.forward", "fc"), job.place("Net.forward", "head")
    begun = next(i for i, r in enumerate(rows) if r.get("module") == "h.0.fc")
    gemm = owners(rows[begun:], "addmm.default")
    blocks = ["h.0", "h.1", "h.2", "tail"]
    assert set(gemm) == {(f"{b}.fc", "forward", fc) for b in blocks} | {("head", "forward", head)}


def test_without_the_library_preloaded(build, tmp_path):
    """Kernels are reported then, and whose they are is not: that is said."""
    with Daemon(build, tmp_path, ipc=True) as daemon:
        job = begin(build, daemon, tmp_path)
        wait_until(lambda: job.hooks() == 2, "the hooks")
        rows = end(build, daemon, job)
    assert not any("module" in r for r in rows)
