# SPDX-License-Identifier: MulanPSL-2.0
"""putils as a package: what it needs, what its functions take, what of it is in a recording."""

import json
import subprocess

import pytest
from python_jobs import Jobs
from pythons import one_per_minor, pythons
from recording import clean_env

ANY = [p for p in pythons() if p.minor >= 8][-1]

# As callers pass them: names, order and defaults.
SIGNATURES = {
    "pprint.ifdebug": "()",
    "pprint.log_or_print": "(x)",
    "pprint.log_and_print": "(x)",
    "pprint.tensor_md5": "(t, length=6)",
    "pprint.tprint": "(obj, name='', _do_slice=True)",
    "pprint.aprint": "(name, tensors, file_path='')",
    "pprint.wprint": "(model, name='wprint')",
    "pprint.dis_print": "(x, s='', toTprint=True)",
    "pprint.print_once_by_tag": "(tag, msg)",
    "pprint.monitor_io": "(tag='', max_items=8, max_depth=3)",
    "accuracy.hook_for_model":
        "(model, include_list=None, exclude_list=None, print_structure=True)",
    "accuracy.hookt_dump": "(name, t, dump_forward=True, dump_backward=True, dump_dir=None,"
        " force_requires_grad=True)",
    "accuracy.hookt": "(name, t)",
    "memory._get_current_mem_info": "(unit='GB', precision=2)",
    "memory.pmem_str": "()",
    "memory.report_memory": "(name, print_rank0_only=True)",
    "memory.pmemory": "(tag)",
    "memory.get_tensor_size": "(t)",
    "memory.pmsize": "(model)",
    "memory.get_main_thread_stack": "()",
    "memory.start_host_mem_monitor": "(unique, print_interval=5)",
    "timer.timer": "(name='', print_rank0_only=True)",
    "timer.timer_decorator": "(name=None, print_rank0_only=True)",
    "timer.mprint": "(msg, level='INFO')",
    "timer.get_formatted_time": "()",
    "timer.get_time_str": "()",
    "timer.to_filename_safe": "(s)",
    "timer.CUDAEVENT_TIMER.add_event": "(self, label, group=None)",
    "timer.CUDAEVENT_TIMER.add_cpu": "(self)",
    "timer.CUDAEVENT_TIMER.add_tensor_shape": "(self, label, t)",
    "timer.CUDAEVENT_TIMER.patch_fsdp_all_gather": "(self, label, patch, group=None)",
    "timer.CUDAEVENT_TIMER.flush": "(self)",
    "cache.RolloutCache": "(cache_dir, enabled=True, force_recompute=False)",
    "cache.RolloutCache._hash_inputs": "(self, *args)",
    "cache.RolloutCache.load": "(self, key)",
    "cache.RolloutCache.save": "(self, key, obj)",
    "cache.rollout_cache": "(cache, *inputs)",
    "cache.to_cpu_detached": "(obj)",
    "device.is_torch_npu_available": "()",
    "device.get_device_name": "()",
    "device.get_visible_devices_keyword": "()",
    "device.get_torch_device": "()",
    "debug.freeze_print": "(model)",
    "debug.is_port_in_use": "(port)",
    "debug.vscode_gdb":
        "(start_port=23325, end_port=24000, lock_file='/tmp/debugpy.lock')",
    "debug.bk": "()",
    "write2file.log2file": "(content, prefix='')",
    "npu_oom_debug.dump_npu_oom_debug":
        "(tag, requested_bytes=None, error=None, dump_dir=None, run_probe=None)",
    "npu_oom_debug._snapshot_summary": "(snapshot)",
}  # fmt: skip

ASK = """
import inspect, json, sys
sys.modules["torch"] = None     # whoever imports it fails
import putils
assert putils.__version__ == "0.1.0" and not [m for m in sys.modules if m.startswith("putils.")]
found = {}
for name in json.loads(sys.argv[1]):
    at = putils
    for word in name.split("."):
        at = getattr(at, word)
    signature = inspect.signature(at)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    found[name] = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    assert at.__doc__ and ">>>" in at.__doc__, name + " has no example"
assert "putils.tools" not in sys.modules
try:
    putils.nothing
except AttributeError as why:
    assert "nothing" in str(why)
assert putils.accuracy.record_rank == 1 and putils.timer.TIMER_VERBOSE is True
assert putils.device.TORCH_AVAILABLE is False and putils.device.get_device_name() == "cpu"
assert putils.timer.event_timer.enabled is False
putils.pprint.tprint([1], "x")
putils.memory.report_memory("x")
with putils.timer.timer("t"):
    pass
print(json.dumps(found))
"""


def run(python, tmp, build, code, *args, **env):
    done = subprocess.run(
        [python.path, "-B", "-c", code, *map(str, args)],
        cwd=tmp,
        env=clean_env(tmp, PYTHONPATH=build / "python", **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("python", one_per_minor(oldest=8))
def test_it_needs_python_alone(build, tmp_path, python):
    status, out, err = run(python, tmp_path, build, ASK, json.dumps(list(SIGNATURES)))
    assert status == 0, err
    found = json.loads(out.splitlines()[-1])
    assert found == SIGNATURES


LOG = """noise
'[forward]: 0 output'| l1_norm 1.0 | aaaaaa | torch.float32 | torch.Size([1]) | continue: True | mean 1.0
[1.0]
'[forward]: 1 output'| l1_norm {0} | {1} | torch.float32 | torch.Size([1]) | continue: True | mean {0}
[1.0]
"""


def test_logs_are_compared_without_torch(build, tmp_path):
    (tmp_path / "a.log").write_text(LOG.format(1.0, "bbbbbb"))
    (tmp_path / "b.log").write_text(LOG.format(2.0, "cccccc"))
    (tmp_path / "empty.log").write_text("nothing")
    code = "import sys; from putils.accuracy import main; sys.exit(main(sys.argv[1:]))"
    assert run(ANY, tmp_path, build, code, "a.log", "a.log")[:2] == (0, "The runs are equal: 2 tensors.\n")
    status, out, _ = run(ANY, tmp_path, build, code, "a.log", "b.log")
    assert (status, out) == (
        1,
        "The runs first differ at '[forward]: 1 output', the 2nd of 2 tensors: l1_norm 1 and 2 "
        "(50 %), mean 1 and 2 (50 %). 1 tensor before it: equal.\n",
    )
    for bad in ("empty.log", "nowhere", "/proc/self/mem"):
        status, out, err = run(ANY, tmp_path, build, code, "a.log", bad)
        assert (status, out) == (2, "") and err.startswith("putils.accuracy: "), (bad, err)


RECORDED = """
from putils import memory, timer
timer.TIMER_VERBOSE = False
with timer.timer("before the recording"):
    pass
msmemscope.config(events="alloc,free,launch", device="npu,cpu", analysis="")
msmemscope.start()
with timer.timer("forward"):
    with timer.timer("step start"):
        pass
memory.report_memory("after forward")
host = (_sonde.DEV_HOST, _sonde.POOL_HOST)
_sonde.block_alloc(0x7000000000, 8 << 20, *host)
_sonde.block_free(0x7000000000, 0, *host)
_sonde.block_alloc(0x7100000000, 3 << 20, *host)
memory.report_memory("counted")
_sonde.block_free(0x7100000000, 0, *host)
msmemscope.stop()
"""


def test_timers_and_reports_are_in_a_recording(build, tmp_path):
    left = Jobs(build, tmp_path).run(ANY, RECORDED)
    assert left.returncode == 0, left
    marks = [(r.type, r.name.strip('"')) for r in left.of("MSTX")]
    assert [name for _, name in marks if "forward" in name or "step" in name], marks
    text = str(marks)
    assert "forward" in text and "step start (timer)" in text and "before" not in text, marks
    assert [r for r in left.rows if "report_memory after forward" in r.name], left.rows
    # What was there between two reports, and nobody else has seen.
    counted = [line for line in left.stdout.splitlines() if "counted memory" in line]
    assert "| allocated 3.00 max 8.00 reserved " in counted[0], left.stdout


NO_ROOM = """
import sys
sys.modules["sonde._sonde"] = None
from putils import pprint, timer
with timer.timer("t"):
    pass
with timer.timer("t"):
    pass
"""


def test_a_missing_extension_is_said_once(build, tmp_path):
    status, _, err = run(ANY, tmp_path, build, NO_ROOM)
    assert status == 0 and err.count("sonde._sonde cannot be loaded") == 1, err
