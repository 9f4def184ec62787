# SPDX-License-Identifier: MulanPSL-2.0
"""Threads at a given depth, the main one among them.

usage: many.py THREADS DEPTH parked|running|mixed

Prints "ready" when they are all there, and ends with whoever started it. Running threads stay at
their depth; of the mixed ones every second runs, and the main one rests.
"""

import sys
import threading

import view

gate = view.Gate()
go = threading.Event()


def descend(n, then):
    if n > 1:
        return descend(n - 1, then)
    return then()


def spin():
    gate.tids[threading.get_ident()] = view.native_id()
    go.wait()  # or those who are there first would not let the others begin
    i = 0
    while True:
        i += 1


def tell_and(then):
    def told():
        print("ready", flush=True)
        go.set()
        then()

    return told


def main():
    count, depth, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    view.die_with_parent()
    sys.setrecursionlimit(max(1000, depth + 200))
    if how != "parked":
        # the switching alone would take all the time with many of them
        sys.setswitchinterval(0.0005)
    for i in range(1, count):
        runs = how == "running" or (how == "mixed" and i % 2)
        then = spin if runs else gate.park
        name = "runs-%d" % i if runs else "rests-%d" % i
        # _bootstrap, _bootstrap_inner, run are below, park or spin above
        words = (max(1, depth - 4), then)
        threading.Thread(target=descend, args=words, name=name, daemon=True).start()
    while len(gate.tids) < count - 1:
        threading.Event().wait(0.005)
    # <module> and main are below, told and park or spin above
    descend(max(1, depth - 4), tell_and(spin if how == "running" else gate.park))


if __name__ == "__main__":
    main()
