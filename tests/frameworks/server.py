# SPDX-License-Identifier: MulanPSL-2.0
"""A loop that answers requests: no gradients, no optimizer. A step is a request."""
import sys

import torch

STEPS = 12
kept = {}
device = "cuda" if torch.cuda.is_available() else "cpu"
net = torch.nn.Sequential(
    torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128)
).to(device)
net.eval()


def answer(number):
    x = torch.rand(64, 128, device=device)
    with torch.no_grad():
        y = net(x)
    if "leak" in sys.argv:
        kept[number] = y.repeat(16, 1)  # the leak
    return float(y.sum())


for request in range(STEPS):
    answer(request)
print("steps", STEPS)
