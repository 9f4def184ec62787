# SPDX-License-Identifier: MulanPSL-2.0
import sys

from . import main

sys.exit(main())
