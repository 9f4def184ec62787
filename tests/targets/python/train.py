# SPDX-License-Identifier: MulanPSL-2.0
"""A small training loop on the CPU. Prints what it has computed, to the last bit.

usage: train.py LEAK STEPS [NAME=VALUE …]

LEAK: none; list (activations are kept in a list); graph (a sum of what was measured is kept as a
tensor, and with it everything that its gradient would need); buffer (a list of the last three, which
is no leak).
With names and values the package records, configured by them; "package" alone: with its defaults;
"step" alone: only tells steps. Without, it is not even imported.
"""
import collections
import hashlib
import random
import sys

import torch

leak, steps, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
if words:
    import msmemscope

torch.manual_seed(1)
random.seed(2)
torch.set_num_threads(1)
kept = []
recent = collections.deque(maxlen=3)
total = 0.0


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 128)
        self.second = torch.nn.Linear(128, 10)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x):
        hidden = self.first(x)
        active = torch.relu(hidden)  # the list keeps this
        if leak == "list" and self.training:
            kept.append(active.detach())
        if leak == "buffer" and self.training:
            recent.append(active.detach())
        return self.second(self.dropout(active))


def train_step(net, optimizer, batch, wanted):
    global total
    loss = torch.nn.functional.cross_entropy(net(batch), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    net.eval()
    measured = net(batch).square().mean()
    net.train()
    total = total + (measured if leak == "graph" else measured.item())
    return loss.item()


def digest(tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(bytes(t.detach().flatten().contiguous().view(torch.uint8).tolist()))
    return h.hexdigest()


def main():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(steps):
        batch, wanted = torch.randn(32, 64), torch.randint(0, 10, (32,))
        print(train_step(net, optimizer, batch, wanted).hex())
        if words:
            msmemscope.step()
    state = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    print(digest(net.parameters()), digest(p.grad for p in net.parameters()))
    print(digest(state), digest([torch.get_rng_state()]), random.random().hex())


if words and words != ["step"]:
    named = [w.split("=", 1) for w in words if "=" in w]
    msmemscope.config(**dict(named))
    msmemscope.start()
main()
if words and words != ["step"]:
    msmemscope.stop()
