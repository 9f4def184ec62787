#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""A transformer that trains as its standard input says, for activity.py. Plain PyTorch.

    steps N              trains so many steps; answers with the seconds that one took
    profile N FILE       the same under torch.profiler; per kernel [count, microseconds] as JSON
    xlsx N FILE          the same under msmonitor.Monitor, which saves FILE
    start|stop|flush     of the source alone (--driver: activity_driver.c), KINDS as bits
    totals FILE          what the driver has added up, in the form of "profile"

Answers "ok …" to each. Ends with its input.
"""

import argparse
import ctypes
import json
import sys
import time

import torch
import torch.profiler

MARKS = ("step", "forward", "ProfilerStep")


def demangle(name, lib=[]):
    if not name.startswith("_Z"):
        return name
    if not lib:
        lib.append(ctypes.CDLL("libstdc++.so.6").__cxa_demangle)
        lib[0].restype = ctypes.c_char_p
    plain = lib[0](name.encode(), None, None, ctypes.byref(ctypes.c_int()))
    return plain.decode() if plain else name


class Job:
    def __init__(self, driver):
        torch.manual_seed(0)
        self.driver = ctypes.CDLL(driver) if driver else None
        layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, 8).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.x = torch.randn(16, 256, 512, device="cuda")
        self.train(20)

    def step(self):
        torch.cuda.nvtx.range_push("step")
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.nvtx.range_push("forward")
        loss = (self.model(self.x) - self.x).square().mean()
        torch.cuda.nvtx.range_pop()
        loss.backward()
        self.optimizer.step()
        torch.cuda.nvtx.range_pop()

    def train(self, n):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(n):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / n

    def profile(self, n, path):
        both = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=both) as p:
            self.train(n)
        totals = {}
        for e in p.events():
            if e.device_type != torch.autograd.DeviceType.CUDA or e.is_user_annotation:
                continue
            if e.name.startswith(("Memcpy", "Memset") + MARKS):
                continue
            t = totals.setdefault(demangle(e.name), [0, 0.0])
            t[0] += 1
            t[1] += e.device_time_total
        with open(path, "w") as f:
            json.dump(totals, f)
        return sum(t[0] for t in totals.values())

    def xlsx(self, n, path):
        from msmonitor import ActivityKind, Monitor

        monitor = Monitor()
        monitor.start([ActivityKind.Kernel, ActivityKind.Marker])
        self.train(n)
        monitor.stop()
        monitor.save(path)
        return len(monitor.get_result().get(ActivityKind.Kernel, []))

    def totals(self, path):
        self.driver.drv_write((path + ".tsv").encode())
        totals = {}
        with open(path + ".tsv") as f:
            for line in f:
                kind, n, ns, name = line.rstrip("\n").split("\t", 3)
                if kind == "2":
                    t = totals.setdefault(demangle(name), [0, 0.0])
                    t[0] += int(n)
                    t[1] += int(ns) / 1000
        with open(path, "w") as f:
            json.dump(totals, f)
        self.driver.drv_lost.restype = ctypes.c_uint64
        return self.driver.drv_lost()

    def do(self, command, *args):
        if command == "steps":
            return self.train(int(args[0]))
        if command == "profile":
            return self.profile(int(args[0]), args[1])
        if command == "xlsx":
            return self.xlsx(int(args[0]), args[1])
        if command == "totals":
            return self.totals(args[0])
        if command == "start":
            self.driver.drv_reset()
            return self.driver.drv_start(int(args[0]))
        if command == "aside":
            return self.driver.drv_aside()
        getattr(self.driver, "drv_" + command)()
        return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver")
    job = Job(parser.parse_args().driver)
    print("ok ready", flush=True)
    for line in sys.stdin:
        print("ok", job.do(*line.split()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
