# SPDX-License-Identifier: MulanPSL-2.0
"""Trains cells of MindSpore (or of what stands in for it), and says what they hold, in bytes.

    train_cells.py WAY

WAY: cell (a cell for training) or function (an optimizer that is called). A line of JSON as those of
train_modules.py. Begins when calls of cells are seen: all of it takes less time than that.
"""

import json
import sys
import time

from mindspore import nn


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc, self.proj = nn.Dense(64, 129), nn.Dense(129, 64)

    def construct(self, x):
        return self.proj(self.fc(x))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.h, self.head = nn.CellList([Block() for _ in range(3)]), nn.Dense(64, 10)

    def construct(self, x):
        for block in self.h._cells.values():
            x = block(x)
        return self.head(x)


deadline = time.monotonic() + 20
while not hasattr(nn.Cell.__call__, "__wrapped__") and time.monotonic() < deadline:
    time.sleep(0.001)
net, loss = Net(), nn.MSELoss()
named = list(net.parameters_and_names())
optimizer = nn.Adam([p for _, p in named])
train = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer)
gradients = None
for _ in range(3):
    if sys.argv[1] == "cell":
        train(1)
        gradients = train.found
    else:
        loss(net(1))
        gradients = tuple(type(p)(p.nbytes) for _, p in named)
        optimizer(gradients)
expected = []
for name, p in named:
    expected += [[name, "weight", p.nbytes], [name, "gradient", p.nbytes], [name, "optimizer_state", 2 * p.nbytes]]
time.sleep(0.002)
told = {"time_ns": time.time_ns(), "expected": expected, "whole": ["weight", "gradient"]}
time.sleep(0.002)
print(json.dumps(told))
