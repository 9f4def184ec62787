# SPDX-License-Identifier: MulanPSL-2.0
"""Threads whose names are set when they are made, later, or never.

usage: names.py

Prints "ready", renames some of its threads for every line it reads ("renamed"), and ends with its
standard input.
"""

import os
import sys
import threading

import _thread
import view

gate = view.Gate()


class Worker(threading.Thread):
    """One with attributes of its own, before and after the ones that count."""

    def __init__(self, **kwargs):
        self.before = {"key": "value"}
        super().__init__(**kwargs)
        self.after = [1, 2, 3]
        for i in range(40):
            setattr(self, "attribute_%d" % i, i)

    def run(self):
        gate.park()


def renames_itself(name):
    threading.current_thread().name = name
    gate.park()


def unknown_to_threading():
    gate.park()


def makes_a_dummy():
    threading.current_thread()
    gate.park()


def main():
    threading.Thread(target=gate.park, daemon=True, name="given at birth").start()
    later = threading.Thread(target=gate.park, daemon=True)
    later.start()
    threading.Thread(target=renames_itself, args=("自己命名 🚀",), daemon=True).start()
    threading.Thread(target=renames_itself, args=("x" * 200,), daemon=True).start()
    threading.Thread(target=renames_itself, args=("",), daemon=True).start()
    worker = Worker(name="subclass é", daemon=True)
    worker.start()
    _thread.start_new_thread(unknown_to_threading, ())
    _thread.start_new_thread(makes_a_dummy, ())
    while len(gate.tids) < 8:
        threading.Event().wait(0.01)
    print("ready", flush=True)
    round_number = 0
    while os.read(0, 4096):
        round_number += 1
        later.name = "later %d" % round_number
        worker.name = "Рабочий %d" % round_number
        names = {gate.tids[t.ident]: t.name for t in threading.enumerate() if t.ident in gate.tids}
        view.write(sys.argv[1], {"names": {str(k): v for k, v in names.items()}})
        print("renamed", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
