# SPDX-License-Identifier: MulanPSL-2.0
"""What the package says to somebody who tries it for the first time: the right thing, once."""

import re
import shlex
import subprocess

import pytest
from pythons import every_python, one_per_minor, pythons
from torches import every_torch

PER_MINOR = one_per_minor(oldest=8)
NEWEST = [p for p in pythons() if p.minor >= 8][-1]
NO_DEVICE = "no NPU and no GPU is in use here"
CPU = 'msmemscope.config(device="cpu")'
NOTHING = "nothing is being recorded: call start() first"



def said(left):
    """What we said, without the name in front; the job went through."""
    assert left.returncode == 0, left
    return [line[13:] for line in left.stderr.splitlines() if line.startswith("[msmemscope] ")]


def count(left, text):
    return sum(text in line for line in said(left))


# --- where the recording goes ---


def shown(jobs, left):
    """Runs the command that start() names."""
    (line,) = [line for line in said(left) if "recording into" in line and "look at" in line]
    form = r"Info: recording into (.*) \(look at it with: (.*)\)$"
    place, command = re.match(form, line).groups()
    words = shlex.split(command)
    assert words[:3] == ["sonde", "mem", "show"]
    r = subprocess.run([jobs.build / "bin/sonde", *words[1:]], stdout=subprocess.PIPE)
    assert r.returncode == 0
    return place, r.stdout.decode()


def test_nothing_stood_in_front(jobs):
    """Why there is no host memory in the recording of a plain run: the reason, and the command that would have it."""
    left = jobs.run(NEWEST, 'msmemscope.config(device="cpu")\nmsmemscope.start()\nkeep = bytes(10**6)\nmsmemscope.stop()')
    assert left.returncode == 0
    text = subprocess.check_output([jobs.build / "bin/sonde", "mem", "leaks", left.out], text=True, timeout=60)
    assert "started without msmemscope in front" in text and "--collect-mode=deferred" in text, text
    assert "statically linked" not in text


WINDOWS = """
if sys.argv[1:]:
    msmemscope.config(output_path=sys.argv[1])
for size in (1001, 1002):
    msmemscope.start()
    take(size)
    msmemscope.stop()
"""


@pytest.mark.parametrize("python", PER_MINOR)
def test_start_says_where_it_goes(jobs, python):
    left = jobs.run(python, WINDOWS)
    place, text = shown(jobs, left)
    assert place == str(left.out) and "2 memory events" in text, text


@pytest.mark.parametrize("preload", [False, True])
def test_a_place_of_the_programs_own(jobs, preload):
    """With a space in it: the command can be pasted. With libraries the recording began before."""
    out = jobs.tmp / "run 1"
    left = jobs.run(NEWEST, WINDOWS, out, env=jobs.recipe() if preload else {})
    place, text = shown(jobs, left)
    assert place == str(out) and "2 memory events" in text, text
    assert list(out.glob("msmemscope_*"))


def test_below_the_command(jobs):
    left = jobs.run(NEWEST, WINDOWS, "elsewhere", cli=["--collect-mode=deferred"])
    place, text = shown(jobs, left)
    assert place == str(left.out) and "2 memory events" in text, text
    (line,) = [line for line in said(left) if "can only be set once" in line]
    assert "Ignored: output_path (the options of the msmemscope command are used)" in line
    assert line.endswith(f"files go to {left.out}")


def test_a_second_config(jobs):
    code = """
msmemscope.config(output_path="first")
msmemscope.config(format="db", output_path="second", level="kernel")
"""
    (line,) = said(jobs.run(NEWEST, code))
    assert "Ignored: format, output_path (the values of the first call are used); files go to /" in line
    assert line.endswith("/first")


# --- out of turn ---


@pytest.mark.parametrize("python", PER_MINOR)
def test_out_of_turn(jobs, python):
    code = """
msmemscope.step(); msmemscope.step(); msmemscope.stop(); msmemscope.stop()
assert not os.path.exists("memscopeDumpResults")
msmemscope.start(); msmemscope.start(); take(1001); msmemscope.start()
msmemscope.stop()
"""
    left = jobs.run(python, code)
    assert count(left, NOTHING) == 1 and said(left)[0] == "Info: " + NOTHING
    assert count(left, "Start tracing.") == count(left, "Stop tracing.") == 1
    assert count(left, "already recording into " + str(left.out)) == 1
    assert left.sizes() == [1001]
    assert [r.type for r in left.of("SYSTEM")].count("START_TRACE") == 1


def test_steps_between_windows_are_nothing_to_talk_about(jobs):
    code = "msmemscope.start(); msmemscope.step(); msmemscope.stop(); msmemscope.step()"
    assert not count(jobs.run(NEWEST, code), NOTHING)


def test_start_that_failed_is_said_once(jobs):
    code = """
msmemscope.config(output_path="/proc/nowhere")
msmemscope.start(); msmemscope.step(); msmemscope.stop()
"""
    (line,) = said(jobs.run(NEWEST, code))
    assert line.startswith("Error: nothing is recorded") and "/proc/nowhere" in line


def test_recorded_from_the_beginning(jobs):
    left = jobs.run(NEWEST, "msmemscope.start(); take(1001); msmemscope.stop()", cli=[])
    assert count(left, "already recording into") == 1 and not count(left, "Start tracing.")
    assert count(left, "Stop tracing.") == 1 and left.sizes() == [1001]


# --- nothing to record ---

TRY = """
if sys.argv[1:]:
    msmemscope.config(device=sys.argv[1])
import torch
for _ in range(2):
    msmemscope.start()
    x = torch.ones(1000) + 1
    msmemscope.stop()
assert not torch.cuda.is_initialized()
"""


@pytest.mark.needs("no-device")
@pytest.mark.parametrize("torch", every_torch()[:1])
def test_first_try_on_the_cpu(jobs, torch):
    for device in ((), ("npu",), ("gpu",), ("cuda:0",)):
        left = jobs.run(torch, TRY, *device)
        assert count(left, NO_DEVICE) == count(left, CPU) == 1, left
        assert not left.of("MALLOC")
    left = jobs.run(torch, TRY, "cpu")  # what it says to do
    assert not count(left, NO_DEVICE)
    assert count(left, "host memory below torch's tensors is not recorded") == 1
    assert 4000 in left.sizes()


@pytest.mark.needs("no-device")
def test_first_try_without_torch(jobs, build):
    left = jobs.run(NEWEST, "msmemscope.start()")
    assert count(left, NO_DEVICE) == count(left, CPU) == 1
    # An NPU's library is there, or nothing of devices is asked for.
    sim = f"import ctypes; ctypes.CDLL('{build / 'sim/libascendcl.so'}')\nmsmemscope.start()"
    env = {"LD_LIBRARY_PATH": build / "sim"}
    assert not count(jobs.run(NEWEST, sim, env=env), NO_DEVICE)
    for options in ("events='traceback'", "events='none'", "device='npu,cpu'"):
        left = jobs.run(NEWEST, f"msmemscope.config({options})\nmsmemscope.start()")
        assert not count(left, NO_DEVICE), left


def test_host_memory_without_torch(jobs):
    code = "msmemscope.config(device='cpu')\nmsmemscope.start()\nx = b'x' * 12345678"
    left = jobs.run(NEWEST, code)
    assert count(left, "nothing of host memory is recorded") == 1
    (line,) = [line for line in said(left) if "start with: " in line]
    assert not any(12345678 <= size < 12346000 for size in left.sizes())
    # The line that it names.
    words = line.partition("start with: msmemscope ")[2].split(" -- ")[0].split()
    left = jobs.run(NEWEST, code, cli=words)
    assert not count(left, "host memory")
    assert any(12345678 <= size < 12346000 for size in left.sizes())


@pytest.mark.parametrize("torch", every_torch())
def test_torch_that_comes_later(jobs, torch):
    code = """
msmemscope.config(device="cpu")
msmemscope.start()
import torch
x = torch.ones(12345) + 1
"""
    left = jobs.run(torch, code)
    assert count(left, "(but torch's tensors, once it is imported)") == 1
    assert 49380 in left.sizes()


# --- arguments ---


def test_what_is_watched_comes_before_its_name(jobs):
    code = """
import inspect
for block in ([1, 2, 3], None, "x"):
    try:
        msmemscope.watcher.watch(block)
    except TypeError as why:
        assert str(why).startswith("expected a tensor or an address (int), not "), why
try:
    msmemscope.watcher.watch(4096, length=8)
except TypeError as why:
    assert "needs name=" in str(why)
print(inspect.signature(msmemscope.watcher.watch))
"""
    left = jobs.run(NEWEST, code)
    assert not said(left)
    assert left.stdout.startswith("(*tensor_or_address: Any, name: str = <required>, length")


@pytest.mark.parametrize("torch", every_torch())
def test_a_tensor_without_memory_has_no_owner(jobs, torch):
    code = """
import torch
describer = msmemscope.describe.describer
msmemscope.config(device="cpu", analysis="decompose")
msmemscope.start()
for _ in range(2):
    describer(torch.empty(3, device="meta"), owner="x")
    describer(torch.empty(0), owner="x")
x = torch.ones(12345) + 1
describer(x, owner="mine")
"""
    left = jobs.run(torch, code)
    assert count(left, "describer() was given a tensor that has no memory") == 1
    assert any(r.attr["owner"].endswith("@mine") for r in left.of("MALLOC"))


@pytest.mark.parametrize("torch", every_torch())
def test_hooks_of_another_version(jobs, torch):
    code = """
import inspect, torch
init = msmemscope.init_framework_hooks
assert inspect.signature(init).return_annotation is bool
here = os.path.isdir(os.path.join(torch.__path__[0], "distributed/fsdp/_fully_shard"))
before = set(sys.modules)
assert init("pytorch", "2.9.0", "fsdp2", "decompose") is here, here
assert not any(name.startswith("torch.distributed.fsdp") for name in set(sys.modules) - before)
assert init("verl", "0.7.0", "TaskRunner", "snapshot") is True      # may be imported yet
msmemscope.cleanup_framework_hooks()
print(here, torch.__version__)
"""
    left = jobs.run(torch, code)
    here, version = left.stdout.split()
    text = f"no hooks were set: pytorch {version}, which this program has imported, has none of"
    assert count(left, text) == (here == "False"), left


@pytest.mark.parametrize(
    "call, words",
    [
        ("analyze('leaks')", "analyze('leaks') needs input_path="),
        ("analyze('leaks', input_path='.')", "analyze('leaks') needs mstx_info="),
        ("analyze('inefficient', mstx_info='x')", "analyze('inefficient') takes no mstx_info="),
        ("check_leaks()", "check_leaks() missing"),
        ("check_leaks('.', mark='x')", "check_leaks() got an unexpected keyword"),
        ("check_inefficient('.', size=1)", "check_inefficient() got an unexpected keyword"),
    ],
)
def test_who_is_called_is_who_complains(jobs, call, words):
    code = f"""
try:
    msmemscope.{call}
except TypeError as why:
    print(why)
"""
    left = jobs.run(NEWEST, code)
    assert words in left.stdout and "Config" not in left.stdout, left


def test_words_for_users_of_gpus(jobs):
    code = """
for options in ({"device": "gpu:x"}, {"events": "calls"}):
    try:
        msmemscope.config(**options)
    except ValueError as why:
        print(why)
"""
    device, events = jobs.run(NEWEST, code).stdout.splitlines()
    assert "npu, gpu or cuda (every device), npu:0 to npu:31 (or gpu:N, cuda:N), cpu" in device
    assert "traceback (calls of Python functions)" in events
    r = subprocess.run([jobs.build / "bin/msmemscope", "--help"], stdout=subprocess.PIPE)
    assert "traceback (calls of Python functions)" in " ".join(r.stdout.decode().split())


# --- an interpreter that is too old ---


@pytest.mark.parametrize("python", every_python(oldest=7, newest=7))
def test_too_old_an_interpreter(jobs, python):
    place = jobs.place()
    command = [str(python.path), "-c", "import msmemscope"]
    r = subprocess.run(command, cwd=place, env=jobs.env(), stderr=subprocess.PIPE)
    assert r.returncode == 1
    assert r.stderr.splitlines()[-1].startswith(
        b"ImportError: msmemscope needs CPython 3.8 or later, this is 3.7."
    )
    # Recorded by the command, which would bring the package: nothing is said, nothing is changed.
    command = [jobs.build / "bin/msmemscope", "--events=traceback,alloc", "--analysis=decompose"]
    command += ["--", python.path, "-c", "import time; time.sleep(0.2); print('done')"]
    r = subprocess.run(
        [str(w) for w in command],
        cwd=place,
        env=jobs.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert (r.returncode, r.stdout, r.stderr) == (0, b"done\n", b"")
