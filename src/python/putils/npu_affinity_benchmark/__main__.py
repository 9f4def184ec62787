# SPDX-License-Identifier: MulanPSL-2.0
import sys

from .run import main

sys.exit(main())
