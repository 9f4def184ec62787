# SPDX-License-Identifier: MulanPSL-2.0
"""Gradients of four batches are added up for each step."""
import sys

import torch

STEPS, BATCHES = 8, 4
kept = []
device = "cuda" if torch.cuda.is_available() else "cpu"
net = torch.nn.Sequential(
    torch.nn.Linear(128, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)
).to(device)
optimizer = torch.optim.AdamW(net.parameters())

for batch in range(STEPS * BATCHES):
    x = torch.rand(64, 128, device=device)
    (net(x).square().mean() / BATCHES).backward()
    if "leak" in sys.argv:
        kept.append(x.repeat(4, 1))  # the leak
    if batch % BATCHES == BATCHES - 1:
        optimizer.step()
        optimizer.zero_grad()
print("steps", STEPS)
