# SPDX-License-Identifier: MulanPSL-2.0
"""The monitor in CUDA jobs, on a simulated driver and libcupti with the real ABI and manners."""

import collections
import contextlib
import sqlite3

import pytest
from cuda_jobs import KERNEL, CudaJob, enabled
from daemon import Daemon
from monitored import dyno, state
from waiting import wait_until

VERSIONS = ["18", "28", "130001", "130401"]  # CUDA 12.0, 12.9, 13.0, 13.4


@pytest.fixture
def cuda(build, tmp_path):
    made = []

    def make(**kw):
        made.append(CudaJob(build, tmp_path, **kw))
        return made[-1].__enter__()

    yield make
    for job in made:
        job.__exit__()


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


def test_calls_of_the_driver_have_one_name(cuda):
    """Asked for under several, they come under the first, and that is said."""
    job = cuda(MSMONITOR_USE_DAEMON="1", SONDE_DAEMON="/nobody/there")
    job.start("NodeAPI,AclAPI,API")
    job.tell("kernels gemm 2 1000")
    job.stop()
    assert {r["kind"] for r in job.rows() if "API" in r["kind"]} == {"API"}
    assert "CUPTI: calls of the driver are reported once" in job.said()


MEMORY = ["copy 1 4096", "copy 2 8192", "copy 8 16", "copy 10 32", "set 7 1024",
          "alloc 3 1048576", "free 3 1048576", "alloc 2 512"]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_copies_sets_and_memory(cuda, version):
    job = cuda(SIM_CUPTI_VERSION=version)
    job.start("MemCpy,MemSet,Memory")
    job.tell("kernels gemm 2 1000", *MEMORY)
    job.stop()
    assert {r["kind"] for r in job.rows()} >= {"MemCpy", "MemSet", "Memory"}
    assert not job.rows("Kernel") and not job.rows("RuntimeAPI")
    copies = [(r["copyKind"], r["bytes"], r["async"]) for r in job.rows("MemCpy")]
    assert copies == [("HtoD", 4096, True), ("DtoH", 8192, True), ("DtoD", 16, True),
                      ("DtoD", 32, True)]  # fmt: skip
    assert {r["endNs"] - r["startNs"] for r in job.rows("MemCpy")} == {1000}
    assert {(r["deviceId"], r["streamId"]) for r in job.rows("MemCpy")} == {(0, 7)}
    assert len({r["correlationId"] for r in job.rows("MemCpy")}) == 4
    (was_set,) = job.rows("MemSet")
    assert (was_set["value"], was_set["bytes"], was_set["streamId"]) == (7, 1024, 7)
    memory = [(r["operation"], r["bytes"], r["address"]) for r in job.rows("Memory")]
    address = memory[0][2]
    assert memory == [("allocate", 1048576, address), ("release", 1048576, address),
                      ("allocate", 512, address)]  # fmt: skip


def test_copies_sets_and_memory_in_a_db_by_the_daemon(cuda, build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as daemon:
        job = cuda(MSMONITOR_USE_DAEMON="1", KINETO_IPC_SOCKET_DIR=str(daemon.ipc_dir))
        wait_until(lambda: state(daemon) == "Idle", "the job")
        kinds = ("--mspti-activity-kind", "MemCpy,MemSet,Memory,RuntimeAPI")
        where = ("--log-file", job.out, "--export-type", "DB")
        dyno(build, daemon, "npu-monitor", "--npu-monitor-start", *kinds, *where)
        wait_until(lambda: enabled(job) == [1, 2, 5, 22, 49], "the source")
        job.tell(*MEMORY)
        dyno(build, daemon, "npu-monitor", "--npu-monitor-stop")
        wait_until(lambda: state(daemon) == "Idle", "the end")
    (path,) = job.out.glob("*.db")
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        copies = db.execute("select copyKind, bytes, isAsync from MEMCPY").fetchall()
        assert copies == [(2, 4096, 1), (3, 8192, 1), (4, 16, 1), (4, 32, 1)]
        assert db.execute("select value, bytes from MEMSET").fetchall() == [(7, 1024)]
        memory = db.execute("select operation, bytes from MEMORY_OP").fetchall()
        assert memory == [(0, 1048576), (1, 1048576), (0, 512)]
        calls = db.execute(
            "select s.value, count(*) from CANN_API c join STRING_IDS s on s.id = c.name"
            " group by 1 order by 1"
        ).fetchall()
        assert calls == [("cudaMemcpyAsync", 4), ("cudaMemsetAsync", 1)]


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
    assert job.names() == {"long": 50, "short": 50}


def test_what_runs_too_long_is_lost_and_counted(cuda):
    job = cuda()
    job.start()
    job.tell("kernels short 5 1000", "kernels endless 3 60000000000")
    job.stop()
    assert job.names() == {"short": 5}
    assert [r["lost"] for r in job.rows("loss")] == [3]


@pytest.mark.parametrize("how", ["injected", "preloaded"])
def test_a_profiler_of_the_job_has_everything(cuda, how):
    """Monitor on, profile, monitor again: each sees all of its own time, by its own clock."""
    job = cuda(preload=how == "preloaded", inject=how == "injected")
    job.start()
    job.tell("kernels before 500 1000")
    seen = job.profile("kernels profiled 2000 1000", "sleep 50")
    assert seen == {"kernels": 2000, "unfinished": 0, "foreign": 0, "clock": 0}
    # It may fetch more in a moment; then the monitor goes on by itself.
    wait_until(lambda: enabled(job) == [KERNEL], "the monitor to resume", 30)
    job.tell("kernels after 500 1000")
    job.stop()
    assert job.names() == {"before": 500, "after": 500}
    assert all(r["startNs"] > 10**18 for r in job.rows() if r["kind"] == "Kernel")
    # And afterwards it finds everything as it was.
    assert job.profile("kernels again 100 1000", "sleep 20")["kernels"] == 100


def test_a_profile_that_runs_already_is_not_disturbed(cuda, build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as daemon:
        job = cuda(MSMONITOR_USE_DAEMON="1", KINETO_IPC_SOCKET_DIR=str(daemon.ipc_dir))
        wait_until(lambda: state(daemon) == "Idle", "the job")
        job.tell("profile on", "kernels profiled 100 1000")
        job.start()
        assert KERNEL in enabled(job) and 5 in enabled(job)
        job.tell("kernels both 100 1000", "sleep 3200")
        job.tell("kernels late 50 1000", "sleep 20")
        assert job.tell("profile off") == "kernels 250 unfinished 0 foreign 0 clock 0"
        wait_until(lambda: enabled(job) == [KERNEL], "the monitor to begin", 30)
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
    wait_until(lambda: enabled(job) == [KERNEL], "the monitor to resume", 30)
    job.tell("finalize")  # in the middle of it
    wait_until(lambda: enabled(job) == [KERNEL], "the monitor to resume", 30)
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
    wait_until(lambda: job.names()["last"] == 100, "the last kernels")
    wait_until(lambda: job.names("Marker") == {"last": 1}, "the last mark")


def test_by_the_daemon(cuda, build, tmp_path):
    """As people do it: two variables, and dyno."""
    with Daemon(build, tmp_path, ipc=True) as daemon:
        job = cuda(MSMONITOR_USE_DAEMON="1", KINETO_IPC_SOCKET_DIR=str(daemon.ipc_dir))
        wait_until(lambda: state(daemon) == "Idle", "the job")
        where = ("--log-file", job.out, "--export-type", "Jsonl")
        kinds = ("--mspti-activity-kind", "Kernel,Marker")
        dyno(build, daemon, "npu-monitor", "--npu-monitor-start", *kinds, *where)
        wait_until(lambda: state(daemon) == "Running", "the monitor")
        wait_until(lambda: enabled(job) == [KERNEL], "the source")
        job.tell("kernels gemm 100 1000", "mark here")
        dyno(build, daemon, "npu-monitor", "--npu-monitor-stop")
        wait_until(lambda: state(daemon) == "Idle", "the end")
        assert job.names() == {"gemm": 100} and job.names("Marker") == {"here": 1}
        assert enabled(job) == []
