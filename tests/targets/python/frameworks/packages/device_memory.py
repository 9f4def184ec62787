# SPDX-License-Identifier: MulanPSL-2.0
"""Memory of a device that is none: take() is an event of a recording, with a size to know it by."""

import itertools
import os

from sonde import _sonde

_next = itertools.count(0x7F00000000 + (os.getpid() << 24), 0x100000)


def take(size):
    address = next(_next)
    _sonde.block_alloc(address, size, 0, _sonde.POOL_PTA)
    return address


class Tensor:
    """As much of one as has an address."""

    def __init__(self, size, address=None):
        self.address = take(size) if address is None else address

    def data_ptr(self):
        return self.address
