# SPDX-License-Identifier: MulanPSL-2.0
"""A DataLoader with two worker processes."""
import sys

import torch

STEPS = 8
kept = []
device = "cuda" if torch.cuda.is_available() else "cpu"


class Noise(torch.utils.data.Dataset):
    def __len__(self):
        return 16 * STEPS

    def __getitem__(self, i):
        return torch.full((64,), float(i)), torch.tensor([1.0])


def main():
    net = torch.nn.Linear(64, 1).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in torch.utils.data.DataLoader(Noise(), batch_size=16, num_workers=2):
        x, y = x.to(device), y.to(device)
        loss = ((net(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if "leak" in sys.argv:
            kept.append(x.repeat(1, 256))  # the leak
    print("steps", STEPS)


if __name__ == "__main__":
    main()
