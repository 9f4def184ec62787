# SPDX-License-Identifier: MulanPSL-2.0
"""A program that notices when somebody meddles with it.

usage: invariants.py SECONDS

It watches its own signals, system calls, children, timers and whether it is traced, and ends with
status 42 and one line about its work if nothing was out of the ordinary.
"""

import ctypes
import os
import signal
import sys
import threading
import time

caught = {}


def count(number, _frame):
    caught[number] = caught.get(number, 0) + 1


def tracer():
    with open("/proc/self/status") as f:
        return [int(line.split()[1]) for line in f if line.startswith("TracerPid:")][0]


def raw_pauses(end, problems):
    """System calls without Python's own retry: any interruption shows as EINTR."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd, _keep_open = os.pipe()

    class Poll(ctypes.Structure):
        _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]

    entry = Poll(fd, 1, 0)
    while time.time() < end:
        if libc.poll(ctypes.byref(entry), 1, 5) < 0:
            problems.append("poll() was interrupted: errno %d" % ctypes.get_errno())
            return


def children(end, problems, expected):
    while time.time() < end:
        pid = os.fork()
        if pid == 0:
            os._exit(17)
        expected[0] += 1
        got, status = os.waitpid(pid, 0)
        if got != pid or status != 17 << 8:
            problems.append("child ended with %r" % status)
        time.sleep(0.005)


def sums(end, problems, done):
    while time.time() < end:
        if sum(i * i for i in range(200)) != 2646700:
            problems.append("numbers are wrong")
        done[0] += 1
        if done[0] % 200 == 0 and tracer():
            problems.append("traced by %d" % tracer())


def main():
    end = time.time() + float(sys.argv[1])
    problems, done, expected = [], [0], [0]
    # SA_RESTART must not hide anything from poll(), which is never restarted anyway
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33, signal.SIGCHLD):
            signal.signal(number, count)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    threads = [
        threading.Thread(target=raw_pauses, args=(end, problems)),
        threading.Thread(target=sums, args=(end, problems, done)),
    ]
    for t in threads:
        t.start()
    children(end, problems, expected)
    for t in threads:
        t.join()
    if caught:
        problems.append("signals came in: %r" % caught)
    if problems:
        sys.exit("; ".join(problems[:5]))
    print("sums", done[0], "children", expected[0])
    sys.exit(42)


if __name__ == "__main__":
    main()
