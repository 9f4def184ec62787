# SPDX-License-Identifier: MulanPSL-2.0
"""Launches while the monitor goes from one session to another: each is in a file, or is counted."""

import os
import re
import signal
import time

from cuda_jobs import CudaJob
from fake_daemon import place  # noqa: F401
from fake_daemon import recorders
from waiting import pause, wait_until


def test_each_launch_is_told_or_counted(build, tmp_path, place):  # noqa: F811
    env = {"SONDE_MONITOR_DIR": str(place), "MSMONITOR_USE_DAEMON": "1"}
    with CudaJob(build, tmp_path, SONDE_DAEMON="/nobody/there", **env) as job:
        job.start()
        job.tell("kernels a 50 1000")
        launched, sessions = 50, 0

        def launch(n):
            nonlocal launched
            for _ in range(n):
                job.tell("kernels b 7 1000")
                launched += 7
                pause(0.002, "the pace of the job")

        for _ in range(3):
            launch(20)
            for pid in recorders(place):
                os.kill(pid, signal.SIGKILL)
            sessions += 1
            end = time.monotonic() + 60
            while job.said().count("goes on with another one") < sessions:
                assert time.monotonic() < end
                launch(1)
            launch(10)
        job.stop()

        def counted():
            """In files, and by what it said of each change."""
            lost = re.findall(r"(\d+) activities are lost", job.said())
            return len(job.rows("Kernel")), sum(map(int, lost))

        what = lambda: f"{launched} launches, of which {counted()}\n{job.said()}"
        wait_until(lambda: sum(counted()) >= launched, what, 20)
        rows, lost = counted()
        assert lost and rows + lost == launched, what()
