# SPDX-License-Identifier: MulanPSL-2.0
"""Threads that change from one deep stack to another all the time, each a moment at rest.

usage: restless.py THREADS DEPTH [SECONDS_AT_REST]

No function is in both stacks, so that everything ends and begins anew. Prints "ready" and ends
with whoever started it.
"""

import sys
import threading
import time

import view


def make_chain(name, depth, rest):
    """name_0 calls name_1, and so on; the last one rests."""
    names = {"sleep": time.sleep, "rest": rest}
    lines = ["def %s_%d():\n    sleep(rest)\n" % (name, depth - 1)]
    lines += ["def %s_%d():\n    %s_%d()\n" % (name, i, name, i + 1) for i in range(depth - 1)]
    exec(compile("\n".join(lines), name + ".py", "exec"), names)
    return names[name + "_0"]


def alternate(left, right):
    while True:
        left()
        right()


def main():
    view.die_with_parent()
    count, depth = int(sys.argv[1]), int(sys.argv[2])
    rest = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0003
    for i in range(count):
        chains = [make_chain("%s%d" % (side, i), depth, rest) for side in ("left", "right")]
        threading.Thread(target=alternate, args=chains, daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
