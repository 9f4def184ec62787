# SPDX-License-Identifier: MulanPSL-2.0
"""A loop with Hugging Face's Accelerate, which wraps model, optimizer and loader."""
import sys

import torch
from accelerate import Accelerator

STEPS = 8
kept = []
accelerator = Accelerator()
net = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.GELU(), torch.nn.Linear(512, 1))
optimizer = torch.optim.AdamW(net.parameters())
data = torch.utils.data.TensorDataset(torch.rand(32 * STEPS, 128), torch.rand(32 * STEPS, 1))
loader = torch.utils.data.DataLoader(data, batch_size=32)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)

for x, y in loader:
    with accelerator.accumulate(net):
        loss = torch.nn.functional.mse_loss(net(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    if "leak" in sys.argv:
        kept.append(torch.cat([x] * 64))  # the leak
print("steps", STEPS)
