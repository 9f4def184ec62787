#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""npu_affinity_benchmark under the path that scripts know; the work is done by putils.npu_affinity_benchmark."""

import os
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
if TOP not in sys.path:
    sys.path.insert(0, TOP)
from putils.npu_affinity_benchmark import *  # noqa: E402,F401,F403
from putils.npu_affinity_benchmark import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
