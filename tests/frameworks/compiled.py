# SPDX-License-Identifier: MulanPSL-2.0
"""A model that torch.compile has translated."""
import sys

import torch

STEPS = 8
kept = []
device = "cuda" if torch.cuda.is_available() else "cpu"
net = torch.nn.Sequential(
    torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
).to(device)
backend = "inductor" if device == "cuda" else "aot_eager"
fast = torch.compile(net, backend=backend)
optimizer = torch.optim.Adam(net.parameters())


def train_step(x):
    loss = fast(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if "leak" in sys.argv:
        kept.append(x.repeat(16, 1))  # the leak


for _ in range(STEPS):
    train_step(torch.rand(64, 128, device=device))
print("steps", STEPS)
