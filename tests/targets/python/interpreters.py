# SPDX-License-Identifier: MulanPSL-2.0
"""Sub-interpreters, each in a thread of its own and at rest in a function.

usage: interpreters.py FOLDER

Each writes what it knows of its own stack to FOLDER/N; then "ready" is printed. "none" if this
Python has no sub-interpreters that can be made from Python.
"""

import os
import sys
import threading
import time

import view

try:
    import _interpreters as interpreters
except ImportError:
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        interpreters = None

SCRIPT = """
import os, sys

def told(frame):
    lines = []
    while frame is not None:
        name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        lines.append("%s|%s|%d" % (name, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    with open({path!r} + ".new", "w") as f:
        f.write("\\n".join(lines[::-1]))
    os.rename({path!r} + ".new", {path!r})
    return True

def inside_{number}():
    os.read({fd}, 1) if told(sys._getframe()) else None

def calls_{number}():
    inside_{number}()

calls_{number}()
"""


def run(number, path, fd):
    made = interpreters.create()
    text = SCRIPT.format(number=number, path=path, fd=fd)
    if hasattr(interpreters, "run_string"):
        interpreters.run_string(made, text)
    else:
        interpreters.exec(made, text)


def main():
    if interpreters is None:
        print("none", flush=True)
        return
    fd, keep_open = os.pipe()
    paths = [os.path.join(sys.argv[1], str(i)) for i in range(3)]
    for i, path in enumerate(paths):
        threading.Thread(target=run, args=(i, path, fd), name="hosts-%d" % i, daemon=True).start()
    while not all(os.path.exists(p) for p in paths):
        time.sleep(0.01)
    time.sleep(0.1)
    print("ready", keep_open, flush=True)
    view.wait_for_the_end()


if __name__ == "__main__":
    main()
