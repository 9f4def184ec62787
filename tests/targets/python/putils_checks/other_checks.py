# SPDX-License-Identifier: MulanPSL-2.0
"""putils: memory, timers, cache, device, debug, npu_oom_debug."""

import csv
import dataclasses
import json
import os
import pickle
import re
import socket
import sys
import threading
import types

from putils import cache, debug, device, event_timer, memory, npu_oom_debug, timer


def check_devices(here):
    assert device.TORCH_AVAILABLE is True and device.is_npu_available is False
    assert device.is_cuda_available is (here.device != "cpu")
    assert device.is_torch_npu_available() is False
    assert device.get_device_name() == here.device.split(":")[0]
    assert device.get_visible_devices_keyword() == "CUDA_VISIBLE_DEVICES"
    assert device.get_torch_device() is getattr(here.torch, here.device.split(":")[0])


REPORT = (
    r"\[Rank -1 Device (cpu|cuda:0)\] here memory \(MB\) \| \d+\.\d\d/\d+\.\d\d \| "
    r"allocated \d+\.\d\d max \d+\.\d\d reserved \d+\.\d\d max \d+\.\d\d\n"
)


def check_reports_reset_no_peak(here):
    big = here.torch.ones(8 << 20, device=here.device)
    del big
    peak = memory._numbers().max_allocated
    memory.report_memory("here")
    memory.report_memory("here", print_rank0_only=False)
    said = here.said()
    assert re.fullmatch(f"({REPORT}){{2}}", said), said
    assert memory._numbers().max_allocated >= peak
    assert memory.pmem_str().count(" GiB") == 4
    for unit in ("GB", "MB", "KB"):
        values = memory._get_current_mem_info(unit, 1)
        assert len(values) == 4 and all(re.fullmatch(r"\d+\.\d", v) for v in values), values
    allocated, reserved, used, total = map(float, memory._get_current_mem_info("KB", 0))
    assert allocated <= reserved <= total and used <= total
    try:
        memory._get_current_mem_info("TB")
        raise AssertionError
    except ValueError as why:
        assert "expected GB, MB or KB" in str(why)


def check_snapshots_of_the_allocator(here):
    torch = here.torch
    with memory.pmemory("tag"):
        kept = torch.ones(1024, device=here.device)
    try:
        with memory.pmemory("below/tag"):
            raise KeyError("mine")
    except KeyError:
        pass
    said = here.said()
    for word in ("tag before", "tag after", "below/tag before", "below/tag exception"):
        assert f"] {word} memory (MB)" in said, said
    if here.device == "cpu":
        assert "no device is in use" in here.warned() and os.listdir(".") == []
        return
    names = sorted(os.listdir(".") + os.listdir("below"))
    pattern = r"tag_oom_snapshot_rank_-1_device_0_\d{8}_\d{6}_ms\d{3}_pick\d+\.\d\dGB(_EXC)?.pickle"
    files = [n for n in names if n != "below"]
    assert len(files) == 2 and all(re.fullmatch(pattern, n) for n in files), names
    assert not torch._C._cuda_isHistoryEnabled()
    (name,) = [n for n in os.listdir(".") if n.endswith(".pickle")]
    with open(name, "rb") as f:
        assert pickle.load(f)["segments"]
    del kept


def check_sizes(here):
    torch = here.torch
    assert memory.get_tensor_size(torch.ones(1 << 10, 1 << 8, device=here.device)) == 1 / 1024
    assert memory.get_tensor_size("x") == 0.0
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024, bias=False))
    memory.pmsize(model)
    assert here.said() == ""
    with here.env(TSJPRINT=1):
        memory.pmsize(model)
        memory.pmsize(3)
    lines = here.lines()
    assert lines[0] == "parameter 0.weight: (1024, 256) torch.float32 cpu 0.000977 GB", lines
    assert lines[1:] == ["module 0: 0.000977 GB", "Sequential: 0.000977 GB"], lines


def check_the_stack_of_the_main_thread(here):
    assert memory.get_main_thread_stack().rstrip().endswith("get_main_thread_stack())") is False
    found = []
    thread = threading.Thread(target=lambda: found.append(memory.get_main_thread_stack()))
    thread.start()
    thread.join()
    assert "check_the_stack_of_the_main_thread" in found[0], found


def check_host_memory(here):
    monitor = memory.start_host_mem_monitor("unique", print_interval=60)
    assert monitor.daemon
    monitor.stop()
    (line,) = open(f"unique_{os.getpid()}_hostmem.log").read().splitlines()
    number = r"\d+\.\d\d"
    assert re.fullmatch(
        rf"\[[\d-]+ [\d:.]+\] rss {number} MB \| peak rss {number} MB \| pss ({number}|\?) MB"
        rf" \| host {number}/{number} MB",
        line,
    ), line
    assert "tracemalloc" not in sys.modules or not sys.modules["tracemalloc"].is_tracing()


def check_timers(here):
    with timer.timer("span") as span:
        here.torch.ones(10, device=here.device).sum()
    assert span.elapsed_ms > 0
    stamp = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\]"
    assert re.fullmatch(rf"{stamp} \[INFO\] \[Rank -1\] span: \d+\.\d{{3}} ms\n", here.said())

    @timer.timer_decorator()
    def function(a, b=2):
        return a + b

    @timer.timer_decorator("named", print_rank0_only=False)
    def other():
        raise KeyError

    assert function(1) == 3 and "function: " in here.said() and function.__name__ == "function"
    try:
        other()
    except KeyError:
        assert "named: " in here.said()
    timer.TIMER_VERBOSE = False
    try:
        function(1)
        assert here.said() == ""
    finally:
        timer.TIMER_VERBOSE = True
    name = timer.mprint("hello", "WARN")
    assert re.fullmatch(rf"{stamp} \[WARN\] hello\n", here.said())
    assert re.fullmatch(r"\d{8}_\d{6}_ms\d{3}", name), name
    assert re.fullmatch(r"\d{8}_\d{6}_ms\d{3}", timer.get_time_str())
    assert timer.to_filename_safe("2026-11-18 07:12:40.123") == "20261118_071240_ms123"
    assert re.fullmatch(stamp, f"[{timer.get_formatted_time()}]")
    assert isinstance(timer.event_timer, timer.CUDAEVENT_TIMER)


def check_the_whole_run_is_timed(here):
    """Of what runs after the call has returned, too."""
    import asyncio

    timed = timer.timer_decorator("run")

    @timed
    async def coroutine(a):
        await asyncio.sleep(0)
        assert here.said() == ""
        return a + 1

    @timed
    def items():
        got = yield 1
        assert got == "sent" and here.said() == ""
        try:
            yield 2
        except KeyError:
            yield 3
        return "end"

    @timed
    async def async_items():
        got = yield 1
        assert got == "sent" and here.said() == ""
        try:
            yield 2
        except KeyError:
            yield 3

    async def use():
        assert await coroutine(1) == 2 and here.said().count("run: ") == 1
        found = async_items()
        assert here.said() == ""
        assert await found.asend(None) == 1 and await found.asend("sent") == 2
        assert await found.athrow(KeyError()) == 3 and here.said() == ""
        assert [i async for i in found] == [] and here.said().count("run: ") == 1
        half = async_items()
        await half.asend(None)
        await half.aclose()
        assert here.said().count("run: ") == 1

    asyncio.run(use())
    found = items()
    assert here.said() == ""
    assert next(found) == 1 and found.send("sent") == 2 and found.throw(KeyError()) == 3
    try:
        next(found)
        raise AssertionError("it does not end")
    except StopIteration as end:
        assert end.value == "end" and here.said().count("run: ") == 1
    assert items.__name__ == "items"

    @types.coroutine
    def old():
        yield
        return 5

    async def wait():
        return await timed(old)()

    assert asyncio.run(wait()) == 5 and here.said().count("run: ") == 1


def check_event_timer(here):
    events = event_timer.CUDAEVENT_TIMER()
    events.add_event("a")
    assert event_timer.event_timer.enabled is False and events.flush() is None
    events.enabled = True
    work = here.torch.ones(100, 100, device=here.device)
    with here.env(LOG_DIR=str(here.tmp / "logs")):
        for _ in range(4):
            events.add_event("mm")
            work @ work
        path = events.flush()
        events.add_event("late, label")
        events.add_event("mm")
        events.add_event("mm")
        events.add_cpu()
        events.add_cpu()
        events.add_tensor_shape("w", work)
        events.flush()
        events.flush()
    assert path == str(here.tmp / "logs/event_timer_rank-1.csv")
    with open(path, newline="") as f:
        rows = list(csv.DictReader(f))
    assert len(rows) == 3 and all(None not in r and None not in r.values() for r in rows), rows
    assert list(rows[0])[:3] == ["timestamp", "flush_count", "device"]
    assert [r["flush_count"] for r in rows] == ["1", "2", "3"]
    times = [float(t) for t in rows[0]["mm_times_ms"].split(";")]
    assert len(times) == 2 and float(rows[0]["mm_max_ms"]) == max(times)
    assert float(rows[0]["mm_min_ms"]) == min(times) and rows[0]["cpu_time_ms"] == ""
    assert rows[1]["late, label_status"] == "unpaired" and float(rows[1]["cpu_time_ms"]) >= 0
    assert rows[1]["w_shape"] == "(100, 100)" and rows[1]["mm_avg_ms"] and not rows[2]["mm_avg_ms"]
    assert rows[0]["device"] == ("cpu" if here.device == "cpu" else "cuda:0")


def check_all_gathers_of_fsdp(here):
    """In the place of FSDP2's modules, which take seconds to import and need several ranks."""
    package = "torch.distributed.fsdp._fully_shard"
    made = {n: types.ModuleType(n) for n in (package, package + "._fsdp_collectives")}
    made[package + "._fsdp_param_group"] = group = types.ModuleType("group")
    group.__name__ = package + "._fsdp_param_group"

    def foreach_all_gather(x):
        return x + 1

    for module in made.values():
        module.foreach_all_gather = foreach_all_gather
    before = {n: sys.modules.get(n) for n in made}
    above = sys.modules.get("torch.distributed.fsdp")
    sys.modules.update(made)
    sys.modules["torch.distributed.fsdp"] = above or types.ModuleType("torch.distributed.fsdp")
    events = event_timer.CUDAEVENT_TIMER(enabled=True)
    try:
        events.patch_fsdp_all_gather("ag", True)
        assert group.foreach_all_gather(1) == 2 and len(events._events["ag"]) == 2
        events.patch_fsdp_all_gather("ag", True)
        group.foreach_all_gather(1)
        assert len(events._events["ag"]) == 4
        events.patch_fsdp_all_gather("ag", False)
        assert group.foreach_all_gather is foreach_all_gather
        made[package + "._fsdp_collectives"].foreach_all_gather = None
        assert here.warned() == ""
    finally:
        for n, module in {**before, "torch.distributed.fsdp": above}.items():
            sys.modules.pop(n, None)
            if module is not None:
                sys.modules[n] = module


def check_the_cache(here):
    torch = here.torch
    kept = cache.RolloutCache(str(here.tmp / "c"))
    inputs = (torch.arange(100, device=here.device), ["a", {"b": 1}], 7)
    with cache.rollout_cache(kept, *inputs) as key:
        assert re.fullmatch(r"[0-9a-f]{40}", key)
        kept.save(key, {"x": [torch.ones(2, device=here.device, requires_grad=True)], "n": 1})
    assert os.listdir("c") == [key + ".pt"]
    with cache.rollout_cache(kept, *inputs) as found:
        assert found["n"] == 1 and not found["x"][0].requires_grad
        assert found["x"][0].device.type == "cpu"
    late = inputs[0].clone()
    late[50] = 0  # beyond what a hash of the first numbers would see
    others = [
        (late, *inputs[1:]),
        (inputs[0].to(torch.int32), *inputs[1:]),
        (inputs[0], ["a", {"b": 2}], 7),
        (inputs[0], ["a", "b", "c", "d"], 7),
        (inputs[0], ["a", "b", "c", "e"], 7),
        inputs[:2],
    ]
    keys = {kept._hash_inputs(*i) for i in others}
    assert len(keys) == len(others) and key not in keys
    for options in ({"enabled": False}, {"force_recompute": True}):
        with cache.rollout_cache(cache.RolloutCache("c", **options), *inputs) as found:
            assert found == (None if "enabled" in options else key)
    with open(kept.path(key), "wb") as f:
        f.write(b"damaged")
    assert kept.load(key) is None and "is not used" in here.warned()
    os.remove(kept.path(key))
    assert kept.load(key) is None and here.warned() == ""
    cache.RolloutCache("/proc/no").save("k", 1)
    assert "is not saved" in here.warned()
    pair = cache.to_cpu_detached((torch.ones(1, requires_grad=True), {"a": [2]}))
    assert not pair[0].requires_grad and pair[1] == {"a": [2]}


@dataclasses.dataclass
class Options:
    seed: int


def check_keys_of_inputs(here):
    """Equal inputs have one key, others another; what cannot be compared has none."""
    import collections
    import enum

    torch, device = here.torch, here.device
    key = cache.RolloutCache("c")._hash_inputs
    Point = collections.namedtuple("Point", "x y")
    Color = enum.Enum("Color", "red green")
    lines = torch.tensor([[0, 1], [1, 0]])

    def sparse(places):
        return torch.sparse_coo_tensor(places, torch.ones(2), (2, 2)).to(device)

    inputs = [
        lambda: "prompt", lambda: "prompt\0", lambda: "\udc80", lambda: "\\udc80", lambda: b"prompt",
        lambda: 1, lambda: True, lambda: 1.0, lambda: None, lambda: [1], lambda: (1,), lambda: [[], 1],
        lambda: {"a": 1, "b": 2}, lambda: {"a": 2, "b": 1}, lambda: {1, 2}, lambda: {1, 3},
        lambda: Point(1, 2), lambda: Color.red, lambda: Color.green, lambda: torch.float32,
        lambda: sparse(lines), lambda: sparse(lines * 0 + lines[0]),
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.quint8),
        lambda: torch.quantize_per_tensor(torch.ones(2) / 2, 0.25, 0, torch.quint8),
        lambda: collections.OrderedDict(a=torch.ones(2, device=device)),
        lambda: collections.OrderedDict(a=torch.zeros(2, device=device)),
    ]  # fmt: skip
    try:
        import numpy as np

        wide = np.arange(5000.0)
        late = wide.copy()
        late[2500] = 0  # str() of an array has its beginning and its end
        inputs += [
            lambda: wide, lambda: late, lambda: late.astype(np.float32), lambda: wide.reshape(50, 100),
            lambda: wide.reshape(50, 100).T, lambda: np.array([1, "a", None], dtype=object),
            lambda: np.array([1, "b", None], dtype=object), lambda: np.float32(1), lambda: {"x": wide},
            lambda: {"x": late},
        ]  # fmt: skip
    except ImportError:
        pass
    keys = [key(make()) for make in inputs]
    assert keys == [key(make()) for make in inputs]
    same = [i for i, k in enumerate(keys) if keys.index(k) != i]
    assert not same, same
    assert key({"a": 1, "b": 2}) == key({"b": 2, "a": 1})
    for bad in (lambda: 1, (i for i in range(3)), check_keys_of_inputs, [lambda: 2], open(os.devnull), here.said):
        with cache.rollout_cache(cache.RolloutCache("c"), 1, bad) as found:
            assert found is None, bad
    assert "have no key, nothing is kept" in here.warned()
    with cache.rollout_cache(cache.RolloutCache("c"), lambda: 1) as found:
        assert found is None and here.warned() == ""  # said once
    assert dataclasses.is_dataclass(Options) and key(Options(1)) != key(Options(2))


def check_texts_are_found_again(here):
    kept = cache.RolloutCache("c")
    for text in ("an answer", ""):
        with cache.rollout_cache(kept, "prompt", text) as found:
            assert isinstance(found, cache.CacheKey) and isinstance(found, str)
            kept.save(found, text)
        with cache.rollout_cache(kept, "prompt", text) as found:
            assert found == text and not isinstance(found, cache.CacheKey)
    kept.save("../outside", 1)
    assert kept.load("../outside") is None and not os.path.exists("outside.pt")
    assert "holds no '/'" in here.warned()


def check_frozen_parameters(here):
    model = here.torch.nn.Linear(1, 1)
    model.bias.requires_grad_(False)
    debug.freeze_print(model)
    assert here.said() == "weight: requires_grad=True\nbias: requires_grad=False\n"


def check_ports(here):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(1)
        port = s.getsockname()[1]
        assert debug.is_port_in_use(port)
    assert not debug.is_port_in_use(port)


def check_the_debugger_is_on_loopback(here):
    calls = []
    fake = types.ModuleType("debugpy")
    fake.listen = lambda where: calls.append(where)
    fake.wait_for_client = lambda: calls.append("waits")
    lock = str(here.tmp / "lock")
    sys.modules["debugpy"] = fake
    try:
        port = debug.vscode_gdb(23325, 24000, lock)
        assert calls == [("127.0.0.1", port), "waits"] and 23325 <= port <= 24000
        assert f"waiting for the debugger on 127.0.0.1:{port}" in here.said()
        # another process would find the lock taken; so does another open file of this one
        assert debug.vscode_gdb(lock_file=lock) is None and len(calls) == 2
        assert "another process waits" in here.said()
        debug._held.pop().close()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen(1)
            taken = s.getsockname()[1]
            assert debug.vscode_gdb(taken, taken, lock) is None
        assert f"every port from {taken} to {taken} is in use" in here.warned()
    finally:
        del sys.modules["debugpy"]


def check_a_breakpoint(here):
    before, stops = sys.breakpointhook, []
    sys.breakpointhook = lambda *a: stops.append(1)
    try:
        debug.bk()
    finally:
        sys.breakpointhook = before
    assert stops == [1]


def check_why_memory_ran_out(here):
    error = None
    try:
        raise RuntimeError("out of memory")
    except RuntimeError as why:
        error = why
    kept = here.torch.ones(1 << 20, device=here.device)
    with here.env(NPU_OOM_DEBUG_DIR=str(here.tmp / "env"), LOCAL_RANK=3):
        found = npu_oom_debug.dump_npu_oom_debug("tag", 3 << 30, error)
        npu_oom_debug.dump_npu_oom_debug("tag", dump_dir="arg", run_probe=True)
    del kept
    said = here.lines()
    assert len(said) == 2 and said[0].startswith("[OOM rank 0] tag: requested 3.00 GiB, "), said
    names = sorted(re.sub(r"\d{9,}", "T", n) for n in os.listdir("env"))
    assert names == [f"npu_oom_rank0_T.{e}" for e in ("json", "pickle", "txt")], names
    (path,) = [p for p in os.listdir("env") if p.endswith(".json")]
    written = json.load(open("env/" + path))
    assert set(written) == set(found) and written["requested_gib"] == 3.0
    keys = (
        "tag rank local_rank device requested_bytes requested_gib mem_get_info memory_allocated"
        " memory_reserved max_memory_allocated max_memory_reserved snapshot_summary stats error"
        " traceback env"
    )
    assert set(keys.split()) <= set(written), set(keys.split()) - set(written)
    assert written["local_rank"] == "3" and "RuntimeError: out of memory" == written["error"]
    assert "check_why_memory_ran_out" in written["traceback"]
    env = "PYTORCH_NPU_ALLOC_CONF MULTI_STREAM_MEMORY_REUSE HCCL_BUFFSIZE ASCEND_VISIBLE_DEVICES"
    assert set(env.split()) <= set(written["env"])
    if here.device == "cpu":
        assert written["mem_get_info"] == {"__error__": "no device is in use"}
        return
    (path,) = [p for p in os.listdir("arg") if p.endswith(".json")]
    written = json.load(open("arg/" + path))
    assert written["mem_get_info"]["total_bytes"] > written["memory_allocated"] > 0
    assert written["snapshot_summary"]["active_total_bytes"] > 0
    for probe in ("probe_before_empty_cache", "probe_after_empty_cache"):
        assert written[probe]["max_ok_gib_approx"] > 1, written


def check_the_summary_of_a_snapshot(here):
    gib = 1 << 30
    states = ("active_allocated", "active_pending_free", "inactive", "free")
    blocks = [{"state": s, "size": n * gib} for s, n in zip(states, (1, 2, 3, 4))]
    snapshot = [{"total_size": 10 * gib, "blocks": blocks}, {"total_size": gib, "blocks": []}]
    want = {
        "segment_count": 2,
        "segment_total_bytes": 11 * gib,
        "segment_total_gib": 11.0,
        "block_count": 4,
        "active_blocks": 2,
        "inactive_blocks": 2,
        "free_blocks": 1,
        "active_total_bytes": 3 * gib,
        "inactive_total_bytes": 7 * gib,
        "largest_inactive_block_bytes": 4 * gib,
        "largest_inactive_block_gib": 4.0,
        "block_states": {s: 1 for s in states},
    }
    assert npu_oom_debug._snapshot_summary(snapshot) == want
    assert npu_oom_debug._snapshot_summary({"segments": snapshot}) == want
