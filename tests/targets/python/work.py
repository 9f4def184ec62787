# SPDX-License-Identifier: MulanPSL-2.0
"""Threads at full speed, most of them in C without the GIL, that count how far they have come.

usage: work.py FILE THREADS [DEPTH]

FILE holds one number of 8 bytes per thread, in memory shared with whoever maps it: asking costs
the program nothing. Prints "ready" and ends with whoever started it.
"""

import hashlib
import mmap
import sys
import threading

import view

DATA = b"x" * (1 << 17)
go = threading.Event()


def work(slot, done):
    go.wait()  # or those who are there first would not let the others begin
    if slot % 8 == 0:
        python_work(slot, done)
    else:
        native_work(slot, done)


def native_work(slot, done):
    while True:
        hashlib.sha256(DATA).digest()  # without the GIL
        done[slot] += 1


def python_work(slot, done):
    while True:
        sum(i * i for i in range(3000))
        done[slot] += 1


def descend(n, slot, done):
    if n > 1:
        return descend(n - 1, slot, done)
    return work(slot, done)


def main():
    view.die_with_parent()
    count = int(sys.argv[2])
    depth = int(sys.argv[3]) if len(sys.argv) > 3 else 16
    with open(sys.argv[1], "w+b") as f:
        f.truncate(count * 8)
        done = memoryview(mmap.mmap(f.fileno(), count * 8)).cast("Q")
    for i in range(1, count):
        threading.Thread(target=descend, args=(depth, i, done), daemon=True).start()
    print("ready", flush=True)
    go.set()
    descend(depth, 0, done)


if __name__ == "__main__":
    main()
