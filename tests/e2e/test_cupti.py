# SPDX-License-Identifier: MulanPSL-2.0
"""The monitor in CUDA jobs, on a simulated driver and libcupti with the real ABI and manners."""

import collections
import os
import pathlib
import subprocess

import pytest
from daemon import Daemon
from monitored import dyno, lines, state, until

VERSIONS = ["18", "28", "130001", "130401"]  # CUDA 12.0, 12.9, 13.0, 13.4
KERNEL = 10  # of CUPTI's kinds


class CudaJob:
    """tests/targets/cuda_job.c, which does what it is told."""

    def __init__(self, build, tmp_path, preload=False, inject=True, nvtx=True, **env):
        self.build, self.out = build, tmp_path / "out"
        self.out.mkdir()
        self.lib = str(build / "lib" / "libsonde_monitor.so")
        self.env = dict(os.environ, MONITOR_LIB=self.lib, **env)
        for name, wanted in (
            ("CUDA_INJECTION64_PATH", inject),
            ("NVTX_INJECTION64_PATH", inject and nvtx),
            ("LD_PRELOAD", preload),
        ):
            self.env.pop(name, None)
            if wanted:
                self.env[name] = self.lib
        self.process = subprocess.Popen(
            [build / "targets" / "cuda_job"],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        self.pid = self.process.pid

    def __enter__(self):
        self.tell("init")
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def tell(self, *commands):
        """What it said to the last of them."""
        for command in commands:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            said = self.process.stdout.readline().strip()
            assert said.endswith("ok"), said
        return said[:-2].strip()

    def order(self, start=True, kinds="Kernel"):
        text = (
            f"NPU_MONITOR_START={start};NPU_MONITOR_STOP={not start};REPORT_INTERVAL_S=1;"
            f"DURATION=0;MSPTI_ACTIVITY_KIND={kinds};NPU_MONITOR_LOG_FILE={self.out};"
            "NPU_MONITOR_EXPORT_TYPE=Jsonl"
        )
        return self.tell(f"order {text}")

    def start(self, kinds="Kernel"):
        assert self.order(True, kinds) == "0"

    def stop(self):
        assert self.order(False) == "0"

    def profile(self, *commands):
        """Runs them under the job's own profiler; the numbers that it ends with."""
        self.tell("profile on", *commands)
        words = self.tell("profile off").split()
        return dict(zip(words[::2], map(int, words[1::2])))

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0

    def rows(self):
        files = sorted(pathlib.Path(self.out).glob("*.jsonl"))
        return [row for f in files for row in lines(f)]

    def names(self, kind="Kernel"):
        return collections.Counter(r["name"] for r in self.rows() if r["kind"] == kind)


@pytest.fixture
def cuda(build, tmp_path):
    made = []

    def make(**kw):
        made.append(CudaJob(build, tmp_path, **kw))
        return made[-1].__enter__()

    yield make
    for job in made:
        job.__exit__()


def enabled(job):
    return [k for k in range(1, 60) if job.tell(f"enabled {k}") == "1"]


@pytest.mark.parametrize("version", VERSIONS)
def test_kernels_of_every_version(cuda, version):
    job = cuda(SIM_CUPTI_VERSION=version)
    job.start()
    job.tell("kernels gemm 3000 50000", "kernels softmax 7 1000")
    job.stop()
    assert job.names() == {"gemm": 3000, "softmax": 7}
    gemm = [r for r in job.rows() if r.get("name") == "gemm"]
    assert {r["endNs"] - r["startNs"] for r in gemm} == {50000}
    assert {(r["deviceId"], r["streamId"]) for r in gemm} == {(0, 7)}
    assert len({r["correlationId"] for r in gemm}) == 3000


def test_a_newer_library_is_believed_only_if_its_records_fit(cuda):
    job = cuda(SIM_CUPTI_VERSION="140000")
    job.start()
    job.tell("kernels gemm 5 1000")
    job.stop()
    assert job.names() == {"gemm": 5}


def test_a_newer_library_with_shorter_records_tells_nothing(cuda):
    job = cuda(SIM_CUPTI_VERSION="140000", SIM_CUPTI_SHORT="1")
    job.start()
    job.tell("kernels gemm 5 1000")
    job.stop()
    assert not job.names()


def test_an_old_library_is_refused(cuda):
    job = cuda(SIM_CUPTI_VERSION="17")
    assert job.order().startswith("-")
    assert enabled(job) == []


def test_all_kinds(cuda):
    job = cuda()
    job.start("Kernel,RuntimeAPI,API,Communication,Marker")
    job.tell("kernels gemm 2 1000", "kernels ncclDevKernel_AllReduce_Sum_f32_RING_LL 1 1000")
    job.tell("push step", "mark here", "pop")
    job.stop()
    kinds = collections.Counter(r["kind"] for r in job.rows())
    assert kinds["Kernel"] == 2 and kinds["Communication"] == 1
    assert kinds["RuntimeAPI"] == kinds["API"] == 3
    assert job.names("RuntimeAPI") == {"cudaLaunchKernel": 3}
    assert job.names("API") == {"cuLaunchKernel": 3}
    assert job.names("Marker") == {"step": 1, "here": 1}
    comm = next(r for r in job.rows() if r["kind"] == "Communication")
    assert (comm["algType"], comm["dataType"], comm["commName"]) == ("RING", "FP32", "")
    calls = [r for r in job.rows() if r["kind"] == "RuntimeAPI"]
    assert {(r["processId"], r["threadId"]) for r in calls} == {(job.pid, job.pid)}
    marks = [r for r in job.rows() if r["kind"] == "Marker"]
    assert {(r["processId"], r["threadId"]) for r in marks} == {(job.pid, job.pid)}


def test_off_means_off(cuda):
    job = cuda()
    assert enabled(job) == []
    job.tell("kernels before 5 1000", "mark before")
    job.start("Kernel,Marker")
    assert enabled(job) == [KERNEL]
    job.tell("kernels during 5 1000", "mark during")
    job.stop()
    assert enabled(job) == []
    job.tell("kernels after 5 1000", "mark after")
    job.start("MemCpy")
    assert enabled(job) == [1, 22]
    job.stop()
    assert job.names() == {"during": 5} and job.names("Marker") == {"during": 1}


def test_what_still_runs_is_waited_for(cuda):
    """A flush every second meets kernels that have not ended; none is cut off by it."""
    job = cuda()
    job.start()
    for _ in range(5):
        job.tell("kernels long 10 300000000", "kernels short 10 1000", "sleep 280")
    job.stop()
    # Those of the last 200 ms may have had no end when it was stopped.
    seen = job.names()
    assert seen["long"] >= 40 and seen["short"] >= 40


@pytest.mark.parametrize("how", ["injected", "preloaded"])
def test_a_profiler_of_the_job_has_everything(cuda, how):
    """Monitor on, profile, monitor again: each sees all of its own time, by its own clock."""
    job = cuda(preload=how == "preloaded", inject=how == "injected")
    job.start()
    job.tell("kernels before 500 1000")
    seen = job.profile("kernels profiled 2000 1000", "sleep 50")
    assert seen == {"kernels": 2000, "unfinished": 0, "foreign": 0, "clock": 0}
    # It may fetch more in a moment; then the monitor goes on by itself.
    until(lambda: enabled(job) == [KERNEL], "the monitor to resume", 10)
    job.tell("kernels after 500 1000")
    job.stop()
    assert job.names() == {"before": 500, "after": 500}
    assert all(r["startNs"] > 10**18 for r in job.rows() if r["kind"] == "Kernel")
    # And afterwards it finds everything as it was.
    assert job.profile("kernels again 100 1000", "sleep 20")["kernels"] == 100


def test_a_profile_that_runs_already_is_not_disturbed(cuda, build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as daemon:
        job = cuda(MSMONITOR_USE_DAEMON="1", KINETO_IPC_SOCKET_DIR=str(daemon.ipc_dir))
        until(lambda: state(daemon) == "Idle", "the job")
        job.tell("profile on", "kernels profiled 100 1000")
        job.start()
        assert KERNEL in enabled(job) and 5 in enabled(job)
        job.tell("kernels both 100 1000", "sleep 3200")
        job.tell("kernels late 50 1000", "sleep 20")
        assert job.tell("profile off") == "kernels 250 unfinished 0 foreign 0 clock 0"
        until(lambda: enabled(job) == [KERNEL], "the monitor to begin", 10)
        job.tell("kernels after 10 1000")
        job.stop()
        assert job.names() == {"after": 10}


def test_a_profiler_that_registers_once(cuda):
    """It switches kinds on and off, and relies on the callbacks and the clock of the first time."""
    job = cuda()
    job.start("Marker")  # from here on it is seen who uses the library
    assert job.profile("kernels profiled 10 1000", "sleep 10")["kernels"] == 10
    job.stop()
    job.tell("sleep 400")
    for stopped in (False, True):
        job.start()
        assert enabled(job) == [KERNEL]
        if stopped:
            job.stop()
        job.tell("profile more", "kernels more 30 1000", "sleep 10")
        assert job.tell("profile off") == "kernels 30 unfinished 0 foreign 0 clock 0"
        job.tell("sleep 400")
        job.stop()


def test_kinds_that_others_switch_off_stay_on(cuda):
    job = cuda()
    job.start()
    job.tell(f"disable {KERNEL}", "disable 5")
    assert enabled(job) == [KERNEL]
    job.tell("kernels gemm 5 1000")
    job.stop()
    assert job.names() == {"gemm": 5} and enabled(job) == []


def test_a_profiler_that_finalizes_the_library(cuda):
    job = cuda()
    job.start()
    job.tell("kernels before 10 1000")
    job.profile("kernels profiled 10 1000", "sleep 10")
    job.tell("finalize")
    until(lambda: enabled(job) == [KERNEL], "the monitor to resume", 10)
    job.tell("finalize")  # in the middle of it
    until(lambda: enabled(job) == [KERNEL], "the monitor to resume", 10)
    job.tell("kernels after 10 1000")
    job.stop()
    assert job.names() == {"before": 10, "after": 10}


def test_stopped_while_it_is_aside(cuda):
    job = cuda()
    job.start()
    job.tell("profile on", "kernels profiled 10 1000")
    job.stop()
    assert KERNEL in enabled(job)
    job.tell("sleep 20")
    assert job.tell("profile off").startswith("kernels 10 ")
    job.tell("sleep 2500")
    assert enabled(job) == []


def test_another_tool_has_the_library(cuda):
    job = cuda(SIM_CUPTI_BUSY="1")
    assert job.order().startswith("-")
    assert enabled(job) == []


@pytest.mark.parametrize("how", ["injected", "preloaded"])
def test_marks_need_no_variable_where_nvtx_looks_for_a_tool_in_the_process(cuda, how):
    job = cuda(preload=how == "preloaded", inject=how == "injected", nvtx=False)
    job.start("Marker")
    assert job.tell("push step") == "0"
    job.tell("pop")
    job.stop()
    assert job.names("Marker") == {"step": 1}
    assert job.tell("push off") == "-2"


def test_a_forked_child_goes_on(cuda):
    job = cuda()
    job.start("Kernel,Marker")
    job.tell("kernels before 5 1000", "fork child", "kernels after 5 1000")
    job.stop()
    job.end()
    seen = job.names()
    assert seen["before"] == seen["after"] == 5


def test_a_job_that_ends_while_it_is_monitored(cuda):
    job = cuda()
    job.start("Kernel,Marker")
    job.tell("kernels last 100 1000", "mark last")
    job.end()
    until(lambda: job.names()["last"] == 100, "the last kernels", 20)
    assert job.names("Marker") == {"last": 1}


def test_by_the_daemon(cuda, build, tmp_path):
    """As people do it: two variables, and dyno."""
    with Daemon(build, tmp_path, ipc=True) as daemon:
        job = cuda(MSMONITOR_USE_DAEMON="1", KINETO_IPC_SOCKET_DIR=str(daemon.ipc_dir))
        until(lambda: state(daemon) == "Idle", "the job")
        where = ("--log-file", job.out, "--export-type", "Jsonl")
        kinds = ("--mspti-activity-kind", "Kernel,Marker")
        dyno(build, daemon, "npu-monitor", "--npu-monitor-start", *kinds, *where)
        until(lambda: state(daemon) == "Running", "the monitor")
        until(lambda: enabled(job) == [KERNEL], "the source")
        job.tell("kernels gemm 100 1000", "mark here")
        dyno(build, daemon, "npu-monitor", "--npu-monitor-stop")
        until(lambda: state(daemon) == "Idle", "the end")
        assert job.names() == {"gemm": 100} and job.names("Marker") == {"here": 1}
        assert enabled(job) == []
