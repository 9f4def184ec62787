# SPDX-License-Identifier: MulanPSL-2.0
"""A ResNet of torchvision, trained on random pictures."""
import sys

import torch
import torchvision

STEPS = 8
kept = []
device = "cuda" if torch.cuda.is_available() else "cpu"
net = torchvision.models.resnet18(num_classes=10).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
loss_of = torch.nn.CrossEntropyLoss()


def run_epoch():
    for _ in range(STEPS):
        pictures = torch.rand(4, 3, 64, 64, device=device)
        labels = torch.randint(0, 10, (4,), device=device)
        optimizer.zero_grad()
        scores = net(pictures)
        loss_of(scores, labels).backward()
        optimizer.step()
        if "leak" in sys.argv:
            kept.append(pictures * 2)  # the leak


run_epoch()
print("steps", STEPS)
