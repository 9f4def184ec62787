#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""py_stack_snap under the path that scripts know; the work is done by `sonde snap`.

The program is $SONDE, or bin/sonde in a folder above this file, or sonde in $PATH.
"""

import os
import sys


def candidates():
    if os.environ.get("SONDE"):
        yield os.environ["SONDE"]
        return
    above = os.path.dirname(os.path.realpath(__file__))
    while above != os.path.dirname(above):
        above = os.path.dirname(above)
        yield os.path.join(above, "bin", "sonde")
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        yield os.path.join(folder, "sonde")


def main():
    for path in candidates():
        if os.path.isfile(path) and os.access(path, os.X_OK):
            os.execv(path, ["py_stack_snap"] + sys.argv[1:])
    sys.stderr.write(
        "py_stack_snap: cannot find the program 'sonde': set $SONDE to its path, or put it into $PATH\n"
    )
    return 127


if __name__ == "__main__":
    sys.exit(main())
