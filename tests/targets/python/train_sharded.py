# SPDX-License-Identifier: MulanPSL-2.0
"""Two ranks over gloo whose model is sharded by FSDP; each writes what it holds of it, in bytes.

    train_sharded.py DIRECTORY

Once by fully_shard() (DTensor), once by FullyShardedDataParallel with the original parameters, once
with its flat ones. DIRECTORY/RANK.json: a list of moments, as those of train_modules.py, and "pid".
"""

import gc
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

WIDTH, LAYERS = 64, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.mlp(x + self.attn(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 33)

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return self.head(x)


def by_tensor(net):
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    for part in [*net.h, net]:
        fully_shard(part, mesh=mesh)
    return net


def by_wrapper(net, **how):
    how["device_id"] = torch.device("cpu")
    for i in range(LAYERS):
        net.h[i] = FullyShardedDataParallel(net.h[i], **how)
    return FullyShardedDataParallel(net, **how)


WAYS = {
    "fully_shard": by_tensor,
    "original": lambda net: by_wrapper(net, use_orig_params=True),
    "flat": lambda net: by_wrapper(net, use_orig_params=False),
}


def nbytes(tensor):
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return tensor.numel() * tensor.element_size()


def held(net, optimizer):
    found = []
    for name, p in net.named_parameters():
        name = name.replace("_fsdp_wrapped_module.", "")
        found.append([name, "weight", nbytes(p)])
        if p.grad is not None:
            found.append([name, "gradient", nbytes(p.grad)])
        found.append([name, "optimizer_state", sum(map(nbytes, optimizer.state[p].values()))])
    return found


def train(shard):
    net = shard(Net())
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.rand(8, WIDTH)).sum().backward()
        optimizer.step()
    time.sleep(0.002)
    moment = {"time_ns": time.time_ns(), "expected": held(net, optimizer)}
    time.sleep(0.002)
    return moment


def run(rank, place):
    dist.init_process_group("gloo", init_method=f"file://{place}/store", rank=rank, world_size=2)
    told = {"pid": os.getpid()}
    for name, shard in WAYS.items():
        torch.manual_seed(1)
        told[name] = train(shard)
        gc.collect()  # the model contains itself
    with open(f"{place}/{rank}.json", "w", encoding="utf-8") as out:
        json.dump(told, out)
    dist.destroy_process_group()


def main():
    torch.set_num_threads(1)
    gc.freeze()  # else a collection in one copies every page for both
    other = os.fork()
    run(int(other == 0), sys.argv[1])
    if other:
        _, status = os.waitpid(other, 0)
        sys.exit(status != 0)


main()
