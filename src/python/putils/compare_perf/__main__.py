# SPDX-License-Identifier: MulanPSL-2.0
import sys

from .cli import main

sys.exit(main())
