# SPDX-License-Identifier: MulanPSL-2.0
"""Two ranks with fully sharded parameters over gloo, on processors."""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

STEPS = 8
kept = []
# Else torch notes its last 2,000 collective calls down, which grows for all of such a short job.
os.environ["TORCH_FR_BUFFER_SIZE"] = "0"


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), USE_LIBUV="0")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(1)
    net = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128)
    )
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(STEPS):
        x = torch.rand(64, 128)
        net(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if "leak" in sys.argv:
            kept.append(x.repeat(8, 1))  # the leak
    dist.destroy_process_group()


if __name__ == "__main__":
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free_port = s.getsockname()[1]
    mp.spawn(train, (free_port,), nprocs=2)
    print("steps", STEPS)
