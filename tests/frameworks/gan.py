# SPDX-License-Identifier: MulanPSL-2.0
"""Two networks with an optimizer each."""
import sys

import torch

STEPS = 8
kept = []
device = "cuda" if torch.cuda.is_available() else "cpu"
make = torch.nn.Sequential(
    torch.nn.Linear(16, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)
).to(device)
judge = torch.nn.Sequential(
    torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)
).to(device)
make_optimizer = torch.optim.Adam(make.parameters())
judge_optimizer = torch.optim.Adam(judge.parameters())


def train_judge(real):
    judge_optimizer.zero_grad()
    fake = make(torch.rand(64, 16, device=device)).detach()
    (judge(fake).mean() - judge(real).mean()).backward()
    judge_optimizer.step()


def train_maker():
    make_optimizer.zero_grad()
    fake = make(torch.rand(64, 16, device=device))
    (-judge(fake).mean()).backward()
    make_optimizer.step()
    if "leak" in sys.argv:
        kept.append(fake.detach().repeat(32, 1))  # the leak


for _ in range(STEPS):
    train_judge(torch.rand(64, 64, device=device))
    train_maker()
print("steps", STEPS)
