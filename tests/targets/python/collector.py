# SPDX-License-Identifier: MulanPSL-2.0
"""A thread that runs inside the collector, with the GIL, until standard input ends.

usage: collector.py [gc|spin|none]

gc: a finaliser that gc.collect() called runs and does not end; spin: the same code, called by
hand; none: every thread rests. Prints "ready" and the system id of the thread.
"""

import gc
import sys
import threading

import view


class Cycle:
    def __init__(self):
        self.me = self

    def __del__(self):
        spin()


def spin():
    print("ready", view.native_id(), flush=True)
    while True:
        pass


def rest():
    print("ready", view.native_id(), flush=True)
    threading.Event().wait()


def work():
    how = sys.argv[1] if len(sys.argv) > 1 else "gc"
    if how == "gc":
        Cycle()
        gc.collect()
    elif how == "spin":
        spin()
    else:
        rest()


if __name__ == "__main__":
    threading.Thread(target=work, name="worker", daemon=True).start()
    view.wait_for_the_end()
