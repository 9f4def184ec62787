# SPDX-License-Identifier: MulanPSL-2.0
"""The job of bench/torch_idle: how long a training step takes while nothing is collected.

usage: idle_training.py plain|imported|windows CHUNKS

plain: the package is not there. imported: it is, and nobody has called start(). windows: chunks of
steps outside of a window and inside of one that asks for nothing, in turn. Prints processor time:
`ns_per_step X` or `ns_per_step X Y`, of the fastest chunk, because what disturbs only adds.
"""
import sys
import time

import torch

how, chunks = sys.argv[1], int(sys.argv[2])
if how != "plain":
    import msmemscope
STEPS = 40

torch.manual_seed(1)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
batch, wanted = torch.randn(16, 32), torch.randint(0, 8, (16,))


def chunk():
    begin = time.process_time()
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(net(batch), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.process_time() - begin) * 1e9 / STEPS


if how == "windows":
    msmemscope.config(events="", analysis="", call_stack="", level="op")
outside, inside = [], []
chunk()
for _ in range(chunks):
    outside.append(chunk())
    if how == "windows":
        msmemscope.start()
        inside.append(chunk())
        msmemscope.stop()
print("ns_per_step", *(round(min(times)) for times in (outside, inside) if times))
