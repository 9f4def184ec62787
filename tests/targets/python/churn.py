# SPDX-License-Identifier: MulanPSL-2.0
"""Threads, or with "processes" children, that start and end all the time.

usage: churn.py threads|processes|exec SECONDS

Every thread sums numbers of its own; a wrong sum or a thread that did not run ends the program
with a message. exec: the program replaces itself again and again.
"""

import os
import sys
import threading
import time


def outer(n, results, slot):
    results[slot] = inner(n)


def inner(n):
    return sum(i for i in range(n))


def threads(end):
    rounds = 0
    while time.time() < end:
        results = [None] * 8
        made = [threading.Thread(target=outer, args=(50 * i, results, i)) for i in range(8)]
        for t in made:
            t.start()
        for t in made:
            t.join()
        if results != [sum(range(50 * i)) for i in range(8)]:
            sys.exit("wrong sums: %r" % results)
        rounds += 1
    return rounds


def processes(end):
    rounds = 0
    while time.time() < end:
        pids = []
        for i in range(4):
            pid = os.fork()
            if pid == 0:
                time.sleep(0.001 * i)
                os._exit(inner(7 + i) % 251)
            pids.append(pid)
        for i, pid in enumerate(pids):
            got, status = os.waitpid(pid, 0)
            if got != pid or status != inner(7 + i) % 251 << 8:
                sys.exit("child %d ended with %r" % (i, status))
        rounds += 1
    return rounds


def again(end):
    """Another image under the same pid, as long as there is time."""
    rounds = int(os.environ.get("CHURN_ROUNDS", 0))
    if time.time() >= end:
        return rounds
    os.environ["CHURN_ROUNDS"] = str(rounds + 1)
    os.environ["CHURN_END"] = repr(end)
    os.execv(sys.executable, [sys.executable] + sys.argv)


def main():
    end = float(os.environ.get("CHURN_END", time.time() + float(sys.argv[2])))
    how = {"threads": threads, "processes": processes, "exec": again}[sys.argv[1]]
    rounds = how(end)
    print("rounds", rounds)
    sys.exit(0 if rounds else "not a single round")


if __name__ == "__main__":
    main()
