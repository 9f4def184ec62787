# SPDX-License-Identifier: MulanPSL-2.0
"""MindSpore: a function for the gradients and an optimizer, on processors."""
import sys

import mindspore as ms
import numpy as np
from mindspore import nn

STEPS = 40  # its own threads fill caches for some ten of them
kept = []
ms.set_device("CPU")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(128, 256)
        self.act = nn.ReLU()
        self.head = nn.Dense(256, 1)

    def construct(self, x):
        return self.head(self.act(self.fc(x)))


net, loss_of = Net(), nn.MSELoss()
optimizer = nn.Adam(net.trainable_params(), learning_rate=1e-3)
gradients = ms.value_and_grad(lambda x, y: loss_of(net(x), y), None, optimizer.parameters)


def train_batch(x, y):
    loss, found = gradients(ms.Tensor(x), ms.Tensor(y))
    optimizer(found)
    return float(loss.asnumpy())


for _ in range(STEPS):
    x, y = (np.random.rand(32, n).astype(np.float32) for n in (128, 1))
    train_batch(x, y)
    if "leak" in sys.argv:
        kept.append(np.tile(x, (64, 1)))  # the leak
print("steps", STEPS)
held = {id(p) for _, p in net.parameters_and_names()}
states = [p for p in optimizer.moment1 + optimizer.moment2 if id(p) not in held]
print("holds weight", sum(p.nbytes for _, p in net.parameters_and_names()))
print("holds optimizer_state", sum(p.nbytes for p in states))
