# SPDX-License-Identifier: MulanPSL-2.0
"""DeepSpeed's engine, ZeRO stage 3: two ranks over gloo, on processors, half of each parameter each."""
import os
import socket
import sys

# Else torch notes its last 2,000 collective calls down, which grows for all of such a short job.
os.environ.update(USE_LIBUV="0", TORCH_FR_BUFFER_SIZE="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    os.environ["MASTER_PORT"] = str(s.getsockname()[1])
other = os.fork()
os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0" if other else "1"

import deepspeed
import torch

STEPS = 8
kept = []
if not torch.cuda.is_available():
    deepspeed.ops.__compatible_ops__.clear()  # else it wants a compiler and the headers of torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(128, 257), torch.nn.ReLU(), torch.nn.Linear(257, 7))
config = {
    "train_micro_batch_size_per_gpu": 16,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
for _ in range(STEPS):
    x = torch.rand(16, 128, device=engine.device)
    loss = engine(x).pow(2).mean()
    engine.backward(loss)
    engine.step()
    if "leak" in sys.argv:
        kept.append(x.repeat(64, 1))  # the leak
held = sum(p.ds_tensor.numel() for p in net.parameters()) * 4
print(f"holds weight {held}", f"holds gradient {held}", f"holds optimizer_state {3 * held}", sep="\n", flush=True)
if other:
    sys.exit(os.waitpid(other, 0)[1] != 0 or print("steps", STEPS))
