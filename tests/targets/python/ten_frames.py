# SPDX-License-Identifier: MulanPSL-2.0
"""The job of bench/python_stack: memory events below ten Python functions and more.

usage: ten_frames.py LIBRARY plain|walk|call EVENTS ROUNDS

Events come from 64 places in turn, 32 at a time. Prints `ns_per_event X`: processor time of the
whole process, of the fastest round, because what disturbs only adds.
"""
import ctypes
import sys
import time
import traceback

PLACES, BURST, LEVELS = 64, 32, 12

library = ctypes.PyDLL(sys.argv[1])  # with the GIL, as code below Python usually has it
library.pairs.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.py_object]
how = ["plain", "walk", "call"].index(sys.argv[2])
events, rounds = int(sys.argv[3]), int(sys.argv[4])
library.look_up()


def stack():
    return traceback.extract_stack(limit=10)


def level(n):
    """A function of its own at each level, as in a real program."""
    names = {"below": levels[-1]}
    exec(compile(f"def level{n}(i):\n    return below(i)\n", f"level{n}.py", "exec"), names)
    return names[f"level{n}"]


names = {"pairs": library.pairs, "how": how, "stack": stack, "BURST": BURST}
source = "".join(f"def place{i}():\n    pairs(BURST, how, stack)\n" for i in range(PLACES))
exec(compile(source, "places.py", "exec"), names)
places = [names[f"place{i}"] for i in range(PLACES)]
levels = [lambda i: places[i]()]
for n in range(LEVELS):
    levels.append(level(n))
top = levels[-1]


def one_round():
    begin = time.process_time()
    for i in range(events // BURST):
        top(i % PLACES)
    return (time.process_time() - begin) * 1e9 / (events // BURST * BURST)


one_round()
best = None
for _ in range(rounds):
    time.sleep(0.05)  # a job computes between its allocations; here the recorder catches up
    took = one_round()
    best = took if best is None else min(took, best)
print("ns_per_event %.2f" % best)
