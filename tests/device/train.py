#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""A small real training loop for kineto.py: one hypot kernel in every iteration, to count by.

usage: train.py [--ms N] [--seconds N]

Prints "ready" when it trains. Ends by itself after --seconds, whatever happens to its parent.
"""

import argparse
import os
import sys
import time

import torch
import torch.profiler  # its optimizer hook counts iterations for traces on demand


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ms", type=float, default=20, help="an iteration takes at least this")
    parser.add_argument("--seconds", type=float, default=240)
    args = parser.parse_args()

    device = torch.device("cuda", 0)
    torch.manual_seed(int(os.environ.get("RANK", 0)))
    model = torch.nn.Sequential(
        torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1024)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.randn(512, 1024, device=device)
    end = time.monotonic() + args.seconds
    done = 0
    while time.monotonic() < end:
        began = time.monotonic()
        optimizer.zero_grad()
        out = model(data)
        loss = (out - data).square().mean() + 1e-9 * torch.hypot(data, data).mean()
        loss.backward()
        torch.cuda.synchronize()  # an iteration's kernels end before its optimizer step
        optimizer.step()
        torch.cuda.synchronize()
        done += 1
        if done == 5:
            print("ready", flush=True)
        time.sleep(max(0.0, args.ms / 1000 - (time.monotonic() - began)))
    print(f"done after {done} iterations, loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
