# SPDX-License-Identifier: MulanPSL-2.0
"""Checks of putils that need a PyTorch, all in one process: importing torch takes seconds.

usage: putils_tool_checks.py DEVICE [NAME...]   cpu, cuda or npu; in an empty directory of its own

Prints a line of JSON: {name of a check: "" or what went wrong}.
"""

import collections
import contextlib
import glob
import io
import json
import os
import queue
import sys
import threading
import traceback

import torch

DEVICE, WANTED = sys.argv[1], sys.argv[2:]
torch.set_num_threads(1)


@contextlib.contextmanager
def said():
    """What is printed, on stdout and stderr."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        yield text.getvalue


@contextlib.contextmanager
def raises(kind):
    try:
        yield
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def linear(weight=None):
    made = torch.nn.Linear(4, 4, bias=False).to(DEVICE)
    if weight is not None:
        with torch.no_grad():
            made.weight.fill_(weight)
    return made


# --- compare_perf ---


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.ModuleList([torch.nn.Sequential(linear(), torch.nn.ReLU()) for _ in range(2)])
        self.head = linear()
        self.fails = False

    def forward(self, x):
        for layer in self.layer:
            x = layer(x)
        if self.fails:
            x = x[:, :3]
        return self.head(x)


def check_forward_times():
    from putils.compare_perf import TimingCollector, model_forward_timing, register_model_hooks

    model, x = Model(), torch.ones(2, 4, device=DEVICE)
    names = lambda **how: list(times(model, x, **how).summary)

    def times(model, x, **how):
        collector = TimingCollector()
        with model_forward_timing(model, collector=collector, threshold_seconds=1e-9, **how):
            model(x)
        model(x)
        return collector

    leaves = ["layer.0.0", "layer.0.1", "layer.1.0", "layer.1.1", "head"]
    assert names() == leaves
    assert names(scope_prefix="m") == [f"m.{n}" for n in leaves]
    everything = ["layer.0.0", "layer.0.1", "layer.0", "layer.1.0", "layer.1.1", "layer.1", "head"]
    assert names(leaf_only=False) == everything
    assert names(leaf_only=False, scope_prefix="m")[-1] == "m"
    assert names(module_filter=lambda name, module: name == "head") == ["head"]
    found = times(model, x, leaf_only=False)
    assert {row["call_count"] for row in found.summary.values()} == {1}
    events = {e.name: e for e in found.events}
    inner = events["layer.0.0"].inclusive_ns + events["layer.0.1"].inclusive_ns
    assert events["layer.0"].exclusive_ns == events["layer.0"].inclusive_ns - inner

    collector = TimingCollector("boundary")
    session = register_model_hooks(model, collector=collector, threshold_seconds=100.0, leaf_only=False)
    model.fails = True
    with raises(RuntimeError), collector.scope("step"):
        model(x)
    model.fails = False
    model(x)
    session.remove()
    session.remove()
    assert [e.name for e in collector.events] == ["step"], collector.events
    assert collector.summary["head"]["call_count"] == 1  # the one that failed has no end
    assert collector._stack() == []


def check_both_ways_to_time_a_model_take_the_same():
    import inspect

    from putils.compare_perf import model_forward_timing, register_model_hooks

    one, other = (inspect.signature(f).parameters for f in (model_forward_timing, register_model_hooks))
    assert list(one.items()) == list(other.items()) and list(one)[:2] == ["model", "collector"]
    with raises(TypeError), model_forward_timing(linear(), no_such_thing=1):
        pass


def check_frozen_modules_are_left_out():
    from putils.compare_perf import TimingCollector, model_forward_timing

    class Frozen(torch.nn.Linear):
        def register_forward_pre_hook(self, hook, **how):
            raise RuntimeError("frozen")

    model = torch.nn.Sequential(Frozen(4, 4), torch.nn.ReLU())
    collector = TimingCollector()
    with said() as text, model_forward_timing(model, collector=collector, threshold_seconds=1e-9):
        model(torch.ones(1, 4))
    assert list(collector.summary) == ["1"] and "'0' takes no hooks" in text(), text()


# --- saver ---


def load(path):
    return torch.load(path, map_location="cpu")


def check_the_saver_saves_what_was_there():
    from putils.saver import AsyncTorchSaver

    weight, step = torch.ones(1 << 18, device=DEVICE), [1]
    held = threading.Event()
    with AsyncTorchSaver(tmp_dir="tmp") as saver:
        saver.executor.submit(held.wait)  # the worker is busy: nothing is saved before we say so
        future = saver.save({"w": weight, "again": weight, "steps": step, "none": None}, "out/a.pt")
        weight.fill_(2)
        step.append(2)
        assert not future.done()
        held.set()
        assert future.result(60) == "out/a.pt"
    found = load("out/a.pt")
    assert float(found["w"].sum()) == 1 << 18 and found["steps"] == [1] and found["none"] is None
    assert found["w"].data_ptr() == found["again"].data_ptr()  # one tensor, once in the file
    assert found["w"].device.type == "cpu" and os.path.getsize("out/a.pt") < 6 << 18
    assert sorted(os.listdir("out")) == [".write.lock", "a.pt"] and os.listdir("tmp") == []


Pair = collections.namedtuple("Pair", "a b")


def check_kinds_of_objects():
    from putils.saver import to_cpu

    w = torch.arange(4.0, device=DEVICE)
    state = linear(1.0).state_dict()
    kinds = {"pair": Pair(w, 1), "list": [w, (w,)], "bool": w > 1, "empty": w[:0], "dim0": w.sum(), "state": state,
             "sparse": torch.eye(2).to_sparse(), "complex": torch.ones(2, dtype=torch.complex64),
             "default": collections.defaultdict(list, {"k": [w]}), "view": w[1:3], "set": {1, 2}}  # fmt: skip
    found = to_cpu(kinds)
    w.zero_()
    assert type(found["pair"]) is Pair and found["pair"].a.tolist() == [0, 1, 2, 3]
    assert found["list"][1][0].data_ptr() == found["list"][0].data_ptr() == found["pair"].a.data_ptr()
    assert found["view"].tolist() == [1, 2] and found["bool"].tolist() == [False, False, True, True]
    assert found["empty"].numel() == 0 and float(found["dim0"]) == 6
    assert type(found["state"]) is type(state) and found["state"]._metadata == state._metadata
    assert found["default"]["k"][0].tolist() == [0, 1, 2, 3] and found["default"]["new"] == []
    assert found["sparse"].to_dense().tolist() == [[1, 0], [0, 1]]
    module = linear(3.0)
    module.tied = module.weight
    copy = to_cpu({"model": module})["model"]
    with torch.no_grad():
        module.weight.fill_(4)
    assert copy.weight[0, 0].item() == 3 and copy.weight.device.type == "cpu"
    assert isinstance(copy.weight, torch.nn.Parameter) and copy.tied is copy.weight


def check_failures_reach_the_future():
    from putils import saver

    with open("file", "w"):
        pass
    with said() as text, saver.AsyncTorchSaver(tmp_dir="tmp") as made:
        below = made.save({"a": 1}, "file/a.pt")
        unpicklable = made.save({"f": lambda: 0}, "bad/b.pt")
        good = made.save({"a": 1}, "good.pt")
        assert isinstance(below.exception(60), OSError) and unpicklable.exception(60) is not None
        assert good.result(60) == "good.pt" and load("good.pt") == {"a": 1}
    assert text().count("cannot save 'file/a.pt'") == 1 and text().count("cannot save 'bad/b.pt'") == 1
    assert os.listdir("bad") in ([".write.lock"], []) and os.listdir("tmp") == []
    with raises(RuntimeError):
        with said():
            made.save({"a": 1}, "late.pt").result(60)


def check_locks_of_others_do_not_keep_a_file_back():
    import fcntl

    from putils import saver

    os.mkdir("shared")
    os.symlink(os.path.abspath("elsewhere"), "shared/.write.lock")
    with said(), saver.AsyncTorchSaver(tmp_dir="tmp") as made:
        assert made.save({"b": 2}, "shared/a.pt").result(60) and load("shared/a.pt") == {"b": 2}
    assert not os.path.exists("elsewhere")
    os.unlink("shared/.write.lock")
    saver.LOCK_SECONDS = 0.1
    with open("shared/.write.lock", "w") as lock, said() as text, saver.AsyncTorchSaver(tmp_dir="tmp") as made:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert made.save({"a": 1}, "shared/a.pt").result(60)
    assert "not waited for longer" in text() and load("shared/a.pt") == {"a": 1}


# --- profiling ---


def check_a_profiled_function():
    from putils.profiling import npu_profiler

    calls = []

    @npu_profiler("update_actor start")
    def update(x, fails=False):
        calls.append(x)
        if fails:
            raise KeyError("mine")
        return (torch.ones(8, 8, device=DEVICE) @ torch.ones(8, 8, device=DEVICE)).sum().item() + x

    with said():
        assert update(1) == 513
    assert os.stat("mstx_result").st_mode & 0o777 == 0o700
    (path,) = glob.glob("mstx_result/*.json")
    events = json.load(open(path))
    events = events["traceEvents"] if isinstance(events, dict) else events  # without libkineto
    names = {e.get("name") for e in events}
    assert "update_actor start" in names and "aten::matmul" in names, names
    with said(), raises(KeyError):
        update(2, fails=True)
    assert calls == [1, 2]


def check_a_profiled_block():
    from putils.profiling import profiling_this

    os.environ["MM_ENABLE_PROFILING_PATH"] = "profile"
    for value, flag, files in (("0", True, 0), ("x", True, 0), ("1", False, 0), ("1", True, 1)):
        os.environ["MM_ENABLE_PROFILING"] = value
        with said() as text, profiling_this(flag):
            torch.ones(8, device=DEVICE).sum()
        assert text().count("time cost is: ") == 1 and text().rstrip().endswith(" ms"), text()
        assert len(glob.glob("profile/*.json")) == files, (value, flag)
    with said(), raises(KeyError), profiling_this(True):
        raise KeyError


def check_traces_are_for_their_user_alone():
    """A folder that is there keeps its mode."""
    from putils import profiling

    made = []

    class Profile:
        def __init__(self, on_trace_ready, **how):
            made.append(on_trace_ready)

        __enter__ = __exit__ = lambda *_: None

    kept, torch.profiler.profile = torch.profiler.profile, Profile
    mask = os.umask(0)
    try:
        os.environ.update(MM_ENABLE_PROFILING="1", MM_ENABLE_PROFILING_PATH="one/two")
        with said() as text:
            profiling.npu_profiler("range")(lambda: 1)()
            with profiling.profiling_this(True):
                pass
            os.mkdir("open")
            os.environ["MM_ENABLE_PROFILING_PATH"] = "open"
            with profiling.profiling_this(True):
                pass
        modes = [os.stat(p).st_mode & 0o777 for p in ("mstx_result", "one", "one/two", "open")]
        assert modes == [0o700, 0o700, 0o700, 0o777] and len(made) == 3, (modes, text())
    finally:
        os.umask(mask)
        torch.profiler.profile = kept
        del os.environ["MM_ENABLE_PROFILING"], os.environ["MM_ENABLE_PROFILING_PATH"]


def check_a_profiler_that_fails_is_a_word():
    from putils import profiling

    def broken(**how):
        raise RuntimeError("busy")

    kept, torch.profiler.profile = torch.profiler.profile, broken
    try:
        with said() as text:
            assert profiling.npu_profiler("x")(lambda: 5)() == 5
        assert "the profiler cannot be started: busy" in text(), text()
    finally:
        torch.profiler.profile = kept


# --- burn ---


def check_burn_measures():
    from putils import burn

    results = queue.Queue()
    words = ["--device", DEVICE, "--size", "64", "--seconds", "0.05", "--interval", "0.02", "--sleep", "0"]
    burn.train(0, burn.get_args(words), DEVICE, results)
    readings = list(results.queue)
    assert readings[0].products == 0 and len(readings) >= 2
    for r in readings[1:]:
        assert r.products > 0 and r.flops == r.products * 2 * 64**3 and 0 < r.tflops < 1000
    assert burn.find_device(torch, DEVICE)[0] == DEVICE
    if not torch.cuda.is_available():
        with raises(RuntimeError):
            burn.find_device(torch, "auto")


# --- processors ---


def check_the_affinity_benchmark():
    from putils.npu_affinity_benchmark import parse_schema, run_benchmark
    from putils.npu_affinity_benchmark.run import describe, find_devices, main

    before = os.sched_getaffinity(0)
    devices = find_devices()
    assert (devices == [(0, None)]) == (DEVICE == "cpu"), devices
    found = run_benchmark("bench", profile="smoke", devices=devices[:1])
    assert os.sched_getaffinity(0) == before
    assert parse_schema(json.load(open("bench/raw_results.json"))) == found
    assert len(found["results"]) == len(found["candidates"]) >= 1 and found["failures"] == []
    for r in found["results"]:
        assert r["requested_affinity"] == r["effective_affinity"] and len(r["samples"]) == 40
        assert len({s["checksum"] for s in r["samples"]}) == 1
    assert sorted(os.listdir("bench")) == ["benchmark.log", "raw_results.json", "report.xlsx"]
    lines = open("bench/benchmark.log").read().splitlines()
    assert len(lines) == 1 + len(found["results"])
    if found["leaderboards"]["throughput"]:
        assert describe(found).startswith("Device 0: most products per second on processors ")
    if DEVICE == "cpu":
        with said() as text:
            assert main(["--output-dir", "bench"]) in (0, 12)  # 12: nothing was stable
        assert text().startswith("There is no NPU or GPU: device 0 is the processor itself.\n"), text()


# --- logs of hooks ---


def check_logs_of_hooks_become_a_workbook():
    from putils import accuracy, compare_hooks

    os.environ["TSJPRINT"] = "1"
    for name, weight in (("one.log", 1.0), ("two.log", 1.5)):
        model = torch.nn.Sequential(linear(1.0), torch.nn.Sequential(linear(weight)))
        with said() as text:
            handles = accuracy.hook_for_model(model, print_structure=False)
            model(torch.ones(2, 4, device=DEVICE, requires_grad=True)).sum().backward()
            [h.remove() for h in handles]
        with open(name, "w") as f:
            f.write(text())
    os.environ["TSJPRINT"] = "0"
    words = ["--base-log", "one.log", "--target-log", "two.log", "--output", "logs.xlsx"]
    with said() as text:
        assert compare_hooks.main(words) == 0, text()
    entries = compare_hooks.read_log("one.log")
    assert len(entries) >= 6 and all(e.first.startswith("[") and e.size for e in entries), entries
    assert "The logs first differ at '[forward]: 1.0 output" in text(), text()


def check_lists_of_tensors_agree_with_torch():
    """Sizes of types, for those that this torch has."""
    from putils.weight import DTYPES

    for word, size in DTYPES.values():
        dtype = getattr(torch, word.split(".")[1], None)
        if dtype is not None:
            assert torch.empty(1, dtype=dtype).element_size() == size, word


def check_the_peak():
    from putils.MFU import device_name, peak_of, peak_tflops

    with said():
        if DEVICE == "cpu" and not torch.cuda.is_available():
            assert (device_name(), peak_tflops()) == ("", 0.0)
        else:
            assert device_name() and peak_tflops() == peak_of(device_name()), device_name()


def main():
    top, found = os.getcwd(), {}
    for name, check in list(globals().items()):
        if name.startswith("check_") and name in (WANTED or [name]):
            os.mkdir(os.path.join(top, name))
            os.chdir(os.path.join(top, name))
            try:
                check()
                found[name] = ""
            except BaseException:
                found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
