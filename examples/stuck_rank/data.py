# SPDX-License-Identifier: MulanPSL-2.0
"""Where the batches of a rank come from."""

import os
import sys


class Loader:
    def __init__(self, folder, storage):
        self.folder = folder
        self.storage = storage

    def load_batch(self, index):
        path = "%s/%06d.bin" % (self.folder, index)
        record = os.read(self.storage, 64)
        if not record:
            sys.exit(0)  # the launcher has ended
        return list(record)
