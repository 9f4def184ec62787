# SPDX-License-Identifier: MulanPSL-2.0
"""DeepSpeed's engine, ZeRO stage 2, one process; gradients of two batches are a step."""
import os
import sys

# One process meets nobody; else torch notes its last 2,000 collective calls down, which grows for all of
# such a short job.
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
os.environ.update(USE_LIBUV="0", TORCH_FR_BUFFER_SIZE="0")

import deepspeed
import torch

STEPS, BATCHES = 8, 2
kept = []
if not torch.cuda.is_available():
    deepspeed.ops.__compatible_ops__.clear()  # else it wants a compiler and the headers of torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
config = {
    "train_micro_batch_size_per_gpu": 16,
    "gradient_accumulation_steps": BATCHES,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 2},
}
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)


def train_batch(x):
    loss = engine(x).pow(2).mean()
    engine.backward(loss)
    engine.step()


for _ in range(STEPS):
    for _ in range(BATCHES):
        x = torch.rand(16, 128, device=engine.device)
        train_batch(x)
    if "leak" in sys.argv:
        kept.append(x.repeat(64, 1))  # the leak
print("steps", STEPS)
held = sum(p.numel() for p in net.parameters()) * 4
print("holds weight", held)
print("holds optimizer_state", 3 * held)
