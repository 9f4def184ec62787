#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""A transformer that trains as its standard input says, for activity.py. Plain PyTorch: every step
does the same, with NVTX ranges, a copy from pinned memory, and a set by the CUDA runtime.

    steps N              trains so many steps; answers with the seconds that one took
    profile N FILE       the same under torch.profiler; per kernel [count, microseconds] as JSON
    xlsx N FILE PACKAGES the same under msmonitor.Monitor, which saves FILE
    launches             microseconds that the host needs for the smallest launch that there is
    memory BYTES         takes so much from the driver, and gives it back
    stats                the time, and what torch says: "NS ALLOCATED RESERVED"
    batch N              steps are N times as large from now on; those above count with 1

Answers "ok …" to each. Ends with its input.
"""

import ctypes
import json
import sys
import time

import torch
import torch.profiler
from activity_files import demangled

MARKS = ("step", "forward", "ProfilerStep")
SET_VALUE, SET_BYTES = 90, 12345
LAUNCHES = 1000


def runtime():
    """The libcudart that PyTorch uses."""
    with open("/proc/self/maps") as f:
        paths = {line.split()[-1] for line in f if "libcudart" in line}
    return ctypes.CDLL(min(paths))


class Job:
    def __init__(self):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, 8).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.area = torch.empty(SET_BYTES, dtype=torch.uint8, device="cuda")
        self.small = torch.zeros(16, device="cuda")
        self.runtime = runtime()
        self.batch(1)
        self.train(20)

    def batch(self, times):
        self.host = torch.randn(8 * times, 256, 512).pin_memory()  # 4 MiB each
        self.x = self.host.cuda()
        return ""

    def fill(self):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        at = ctypes.c_void_p(self.area.data_ptr())
        size = ctypes.c_size_t(SET_BYTES)
        assert self.runtime.cudaMemsetAsync(at, SET_VALUE, size, stream) == 0

    def step(self):
        torch.cuda.nvtx.range_push("step")
        self.x.copy_(self.host, non_blocking=True)
        self.fill()
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
            t = totals.setdefault(demangled(e.name), [0, 0.0])
            t[0] += 1
            t[1] += e.device_time_total
        with open(path, "w") as f:
            json.dump(totals, f)
        return sum(t[0] for t in totals.values())

    def xlsx(self, n, path, packages):
        sys.path.insert(0, packages)
        from msmonitor import ActivityKind, Monitor

        monitor = Monitor()
        monitor.start([ActivityKind.Kernel, ActivityKind.Marker])
        self.train(n)
        monitor.stop()
        monitor.save(path)
        return len(monitor.get_result().get(ActivityKind.Kernel, []))

    def launches(self):
        """The least of many: whatever else the machine does makes it more."""
        least = float("inf")
        for _ in range(15):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(LAUNCHES):
                self.small.add_(1)
            least = min(least, time.perf_counter() - began)
        torch.cuda.synchronize()
        return least / LAUNCHES * 1e6

    def memory(self, size):
        torch.cuda.empty_cache()
        block = torch.empty(size, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        del block
        torch.cuda.empty_cache()
        return ""

    def stats(self):
        """Nothing else happens around that moment."""
        torch.cuda.synchronize()
        time.sleep(0.02)
        now, said = time.time_ns(), torch.cuda.memory_stats()
        time.sleep(0.02)
        return f"{now} {said['allocated_bytes.all.current']} {said['reserved_bytes.all.current']}"

    def do(self, command, *args):
        if command == "steps":
            return self.train(int(args[0]))
        if command == "profile":
            return self.profile(int(args[0]), args[1])
        if command == "xlsx":
            return self.xlsx(int(args[0]), *args[1:])
        if command == "launches":
            return self.launches()
        if command == "stats":
            return self.stats()
        if command == "batch":
            return self.batch(int(args[0]))
        return self.memory(int(args[0]))


def main():
    job = Job()
    print("ok", torch.cuda.get_device_name(0), "torch", torch.__version__, flush=True)
    for line in sys.stdin:
        print("ok", job.do(*line.split()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
