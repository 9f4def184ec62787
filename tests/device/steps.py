#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""A rank of a small training job with functions of its own, for stack.py to look at.

usage: steps.py --control FILE [--meet URL] [--steps N] [--seconds N]

RANK and WORLD_SIZE say which rank of how many it is; with --meet the ranks find each other there
and add up their gradients. FILE.RANK is memory shared with whoever maps it: what has been done, and
how long its functions took by the program's own clock (SLOTS). If the last number is IN_BATCH,
load_batch() waits for a line on stdin; if it is IN_SCALE, a function does that C++ has called.
Prints "ready" when it trains. Ends by itself after --steps or --seconds, whatever happens to its
parent.
"""

import argparse
import os
import queue
import sys
import threading
import time

import torch
import torch.distributed
from stack_control import IN_BATCH, IN_SCALE, SLOTS, STAY, map_control

RANK = int(os.environ.get("RANK", 0))


def words():
    parser = argparse.ArgumentParser()
    parser.add_argument("--control", required=True)
    parser.add_argument("--meet")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float, default=240)
    return parser.parse_args()


class Scale(torch.autograd.Function):
    """Python called by C++: in the forward pass from this thread, else from PyTorch's own."""

    @staticmethod
    def forward(ctx, x, wait):
        if wait:
            sys.stdin.readline()
        for _ in range(8):
            x = x * 1.0
        return x

    @staticmethod
    def backward(ctx, grad):
        for _ in range(8):
            grad = grad * 1.0
        return grad, None


def feed_batches(batches):
    """The thread that prepares data."""
    while True:
        batches.put(torch.randn(64, 256))


class Trainer:
    def __init__(self, args):
        self.control = map_control(f"{args.control}.{RANK}")
        self.device = torch.device("cuda", 0)
        torch.manual_seed(RANK)
        layers = []
        for _ in range(8):
            layers += [torch.nn.Linear(256, 256), torch.nn.LayerNorm(256), torch.nn.GELU()]
        self.model = torch.nn.Sequential(*layers).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batches = queue.Queue(4)
        threading.Thread(
            target=feed_batches, args=(self.batches,), name="feeder", daemon=True
        ).start()
        self.together = bool(args.meet)
        if self.together:
            world = int(os.environ["WORLD_SIZE"])
            torch.distributed.init_process_group(
                "gloo", init_method=args.meet, rank=RANK, world_size=world
            )

    def load_batch(self, step):
        if self.control[STAY] == IN_BATCH:
            sys.stdin.readline()
        return self.batches.get().to(self.device)

    def forward(self, batch):
        out = Scale.apply(self.model(batch), self.control[STAY] == IN_SCALE)
        return (out - batch).square().mean()

    def backward(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        torch.cuda.synchronize()

    def reduce_gradients(self):
        if self.together:
            flat = torch.cat([p.grad.view(-1) for p in self.model.parameters()]).cpu()
            torch.distributed.all_reduce(flat)

    def update(self):
        self.optimizer.step()
        torch.cuda.synchronize()

    def timed(self, function, *args):
        began = time.perf_counter_ns()
        result = function(*args)
        self.control[SLOTS.index(function.__name__)] += time.perf_counter_ns() - began
        return result

    def train_step(self, step):
        batch = self.timed(self.load_batch, step)
        loss = self.timed(self.forward, batch)
        self.timed(self.backward, loss)
        self.timed(self.reduce_gradients)
        self.timed(self.update)
        return loss


def main():
    args = words()
    trainer = Trainer(args)
    end = time.monotonic() + args.seconds
    step = 0
    while time.monotonic() < end and (args.steps is None or step < args.steps):
        loss = trainer.train_step(step)
        step += 1
        trainer.control[0] += 1
        if step == 20:
            print("ready", flush=True)
    print(f"done after {step} steps, finite: {bool(torch.isfinite(loss))}", flush=True)


if __name__ == "__main__":
    main()
