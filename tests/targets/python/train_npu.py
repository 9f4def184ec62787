# SPDX-License-Identifier: MulanPSL-2.0
"""A transformer of a real PyTorch on the CPU, each of whose tensors is a block of the pool of an NPU, as those of
torch_npu are. Says what its modules hold, as train_modules.py does."""

import json
import sys
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import train_modules
from sonde import _sonde

ROUNDS_TO = 512

known = {}  # address: weak reference to the storage


def gone(address, ref):
    if known.get(address) is ref:
        del known[address]
        _sonde.block_free(address, 0, 0, _sonde.POOL_PTA)


def tell(tensor):
    storage = tensor.untyped_storage()
    address, size = storage.data_ptr(), storage.nbytes()
    if not address or address in known:
        return
    known[address] = weakref.ref(storage, lambda ref: gone(address, ref))
    rounded = (size + ROUNDS_TO - 1) // ROUNDS_TO * ROUNDS_TO
    _sonde.block_alloc(address, rounded, 0, _sonde.POOL_PTA)


class Pool(TorchDispatchMode):
    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                tell(tensor)
        return result


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with Pool():
        for run in (train_modules.training, train_modules.recomputed):
            case = train_modules.Case(lambda: None)
            run(case)
            for told in case.told:
                print(json.dumps(told))


sys.exit(main())
