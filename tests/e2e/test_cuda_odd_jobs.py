# SPDX-License-Identifier: MulanPSL-2.0
"""CUDA jobs that are odd, or live in odd places: what they print is theirs alone, and what was recorded
is true, or there is a word about what was not (simulated driver)."""

import os
import subprocess

import pytest

from cuda_recorded import MIB, Cuda, build_library, sizes, split


@pytest.fixture
def cuda(build, tmp_path):
    return Cuda(build, tmp_path)


@pytest.fixture(name="odd")
def odd_job(cuda):
    """tests/targets/cuda_odd.c: its rows, once it has printed what it prints without us."""
    program = str(cuda.build / "targets" / "cuda_odd")

    def run(*words, **env):
        said, rows, where = cuda.record(*words, program=program, **env)
        assert said == cuda.plain(*words, program=program, **env)
        return rows, where

    return run


def test_contexts_that_come_and_go(odd):
    """More of them than there can be at once."""
    made, ended = split(odd("resets", "600")[0])
    assert len(made) == len(ended) == 900


def test_frees_of_what_nobody_allocated(odd):
    made, ended = split(odd("unknown")[0])
    assert sizes(made) == sizes(ended) == [MIB]


def test_200_threads(odd):
    made, ended = split(odd("threads", "200")[0])
    assert len(made) == len(ended) == 200 * 51


def test_memory_in_signal_handlers(odd):
    made, ended = split(odd("signals")[0])
    assert sizes(made) == sizes(ended) == [10 * MIB, 12 * MIB]


def test_memory_in_exit_handlers_and_destructors(odd):
    made, ended = split(odd("exit")[0])
    assert (sizes(made), sizes(ended)) == ([MIB, 2 * MIB, 3 * MIB], [2 * MIB, 3 * MIB])


def test_graphs_that_allocate(odd):
    """One block for all graphs of a device: it grows with the second one, and is trimmed."""
    rows, _ = odd("graphs")
    made, ended = split(rows)
    assert [int(r["attr"]["size"]) // MIB for r in made] == [6, 10, 4]
    assert [int(r["attr"]["size"]) // MIB for r in ended] == [6, 10]
    assert {r["attr"]["alloc_type"] for r in rows} == {"graph"}
    assert {r["attr"]["owner"] for r in rows} == {"CUDA@cuda_odd"}


def test_memory_of_the_host_behind_handles(cuda, odd):
    """It is none of the device's, and a kind of host memory where that is recorded."""
    made, _ = split(odd("host")[0])
    assert sizes(made) == [MIB]
    program = str(cuda.build / "targets" / "cuda_odd")
    _, rows, _ = cuda.record("host", program=program, options=["--device=npu,cpu"])
    made, ended = split(rows)
    assert sizes(r for r in made if r["Device Id"] == "0") == [MIB]
    assert sizes(r for r in made if r["Device Id"] == "cpu") == sizes(ended) == [3 * MIB, 4 * MIB]


def test_functions_of_a_cuda_that_is_not_there_yet(odd):
    """The one that has other parameters is the job's own business, the other one is recorded."""
    made, _ = split(odd("tomorrow", SIM_CUDA_VERSION="14000")[0])
    assert sizes(made) == [2 * MIB]


@pytest.mark.parametrize("mib", ["81920", str(2**44 - 1)])
def test_sizes_that_nobody_has(cuda, odd, mib):
    _, where = odd("sizes", SIM_GPU_MEMORY_MIB=mib)
    assert cuda.show(where)["counts"]["ooms"] >= 4
    for question in ("show", "oom", "owners", "peak", "leaks"):
        assert "16.00 EiB" in cuda.say(where, question) or question not in ("show", "oom")


@pytest.mark.parametrize("what", ["all", "graphs", "refuse"])
def test_a_driver_that_says_odd_things(cuda, what):
    """Numbers of devices, names without an end, sums: the job is unharmed, and every answer is text."""
    program = str(cuda.build / "targets" / ("cuda_odd" if what == "graphs" else "cuda_memory"))
    words = [what] if what == "graphs" else ["runtime", what]
    said, _, where = cuda.record(*words, program=program, options=["--analysis=oom,decompose"], SIM_CUDA_ODD="1")
    assert said == cuda.plain(*words, program=program, SIM_CUDA_ODD="1")
    for question in ("show", "oom", "owners", "peak", "leaks"):
        cuda.show(where, question)
        assert "\033" not in cuda.say(where, question)


def test_a_storm_of_children(cuda, odd):
    """40 at once: who asked for it and the peak are of the same moment."""
    rows, where = odd("children", "40")
    assert len(split(rows)[0]) == 40 and len({r["Process Id"] for r in rows}) == 40
    (device,) = cuda.show(where)["devices"]
    assert [a["bytes"] for a in device["askers"]] == [device["peak_bytes"]]


# --- a device that others have ---

HOLD = (
    "import subprocess, sys\n"
    "job = subprocess.Popen(sys.argv[1:4], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
    "job.stdout.readline()\n"
    "status = subprocess.call(sys.argv[4:])\n"
    "job.communicate(b'x')\n"
    "sys.exit(status)\n"
)


def beside_another(cuda, words, *options, **env):
    """Records a job while another one holds 7 MiB and a context of 256 MiB of the device."""
    where = cuda.tmp / "beside"
    env = {**cuda.env, "SIM_GPU_STATE": str(cuda.tmp / "gpus"), **env}
    other = [cuda.program, "runtime", "hold"]
    mine = [*cuda.command(where, *options), *words]
    words = ["/usr/bin/python3", "-c", HOLD, *other, *mine]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done, where


def test_no_room_for_a_context(cuda):
    """CUDA's own first megabytes: who has them, and the place in the program."""
    program = str(cuda.build / "targets" / "cuda_odd")
    done, where = beside_another(cuda, [program, "full"], SIM_GPU_COUNT="1", SIM_GPU_MEMORY_MIB="300")
    assert done.stdout == "begin 2\nsum 0\n"
    text = cuda.say(where)
    assert "could not use NVIDIA SIM 80GB HBM3 (error 2 of the driver): the device's memory was full" in text
    assert "a CUDA context was asked for on device 0" in text and "--device=npu,cpu" not in text
    text = cuda.say(where, "oom")
    assert "Device memory ran out once: other process." in text
    assert "other processes hold 263.00 MiB of the 300.00 MiB of device 0" in text
    assert "(cuda_odd.c:" in text and "nvidia-smi" in text


SMALL = {"SIM_GPU_COUNT": "1", "SIM_GPU_MEMORY_MIB": "512"}


def why_refused(cuda, where):
    (incident,) = cuda.show(where, "oom")["incidents"]
    memory = {k[:-6]: (v or 0) >> 20 for k, v in incident["device_memory"].items()}
    return incident["verdict"], memory


def test_memory_of_a_program_in_c_runs_out(cuda, odd):
    """By the command without an option: its own blocks, its context, others; to the megabyte."""
    state = {**SMALL, "SIM_GPU_STATE": str(cuda.tmp / "own")}
    _, where = odd("fill", "120", **state)
    verdict, memory = why_refused(cuda, where)
    assert (verdict, memory["process"], memory["outside"]) == ("real exhaustion", 150, 256)
    assert (memory["others"], memory["free"], memory["total"]) == (0, 106, 512)
    assert "(cuda_odd.c:" in cuda.say(where, "oom")
    _, where = odd("leak", **state)
    assert why_refused(cuda, where)[0] == "leak"
    _, where = odd("fill", "600", **state)
    assert why_refused(cuda, where)[0] == "oversized request"


POOLED = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context, at, other = ctypes.c_void_p(), ctypes.c_ulonglong(), ctypes.c_ulonglong()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAllocAsync(ctypes.byref(at), ctypes.c_size_t(160 << 20), None) == 0
assert cuda.cuMemFreeAsync(at, None) == 0
time.sleep(0.1)
for _ in range(2):  # the pool is asked what it has with the first, and the second says it
    assert cuda.cuMemAllocAsync(ctypes.byref(at), ctypes.c_size_t(1 << 20), None) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(other), ctypes.c_size_t(150 << 20)) == 2
"""


def test_memory_that_a_pool_of_the_driver_keeps(cuda):
    """It is neither the context's nor anybody else's, and there is a way to have it back."""
    env = {**SMALL, "SIM_GPU_STATE": str(cuda.tmp / "own")}
    _, _, where = cuda.record("-c", POOLED, program="/usr/bin/python3", **env)
    verdict, memory = why_refused(cuda, where)
    assert (verdict, memory["process"], memory["kept"], memory["outside"]) == ("real exhaustion", 2, 158, 256)
    assert memory["others"] == 0 and memory["free"] == 96
    text = cuda.say(where, "oom")
    assert "pools of the driver keep 158.00 MiB for it" in text and "cudaMemPoolTrimTo()" in text


def test_memory_that_others_hold(cuda):
    program = str(cuda.build / "targets" / "cuda_odd")
    _, where = beside_another(cuda, [program, "fill", "200"], **SMALL, SIM_CUDA_CONTEXT_MIB="100")
    verdict, memory = why_refused(cuda, where)
    # a context of 100 for each of the two
    assert (memory["process"], memory["outside"]) == (150, 100)
    assert (verdict, memory["others"], memory["free"]) == ("other process", 107, 155)
    text = cuda.say(where, "oom")
    assert not memory["job"] and "this same job" not in text and "of this job" not in text


FAMILY = """
import os, subprocess, sys
how, other, mine = sys.argv[1], sys.argv[2:5], sys.argv[5:]
env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and (how != "own" or k != "SONDE_SESSION")}
if how == "recorded":
    env = None
if how == "orphan":
    other = ["/bin/sh", "-c", 'exec 3<&0; "$@" <&3 & ', "sh", *other]
job = subprocess.Popen(other, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
job.stdout.readline()
status = subprocess.call(mine)
job.communicate(b"x")
sys.exit(status)
"""


HOLDS = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context, at = ctypes.c_void_p(), ctypes.c_ulonglong()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for size in [150] + 30 * [1]:
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size << 20)) == 0
    time.sleep(0.08)
"""


REFUSED_LATE = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context, at = ctypes.c_void_p(), ctypes.c_ulonglong()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(150 << 20)) == 0
time.sleep(0.3)  # until it was seen who has what
assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(200 << 20)) == 2
for _ in range(30):
    time.sleep(0.05)
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 20)) == 0
"""


@pytest.mark.parametrize("how", ["recorded", "given", "own", "orphan"])
def test_memory_that_others_of_the_job_hold(cuda, how):
    """Recorded or not: without our libraries, with an environment of their own, without a parent."""
    state = {**SMALL, "SIM_GPU_STATE": str(cuda.tmp / "gpus"), "SIM_CUDA_CONTEXT_MIB": "100"}
    mine = ["/usr/bin/python3", "-c", REFUSED_LATE]
    words = ["-c", FAMILY, how, cuda.program, "runtime", "hold", *mine]
    _, _, where = cuda.record(*words, program="/usr/bin/python3", **state)
    verdict, memory = why_refused(cuda, where)
    assert (verdict, memory["others"], memory["job"]) == ("other process", 107, 107)
    text = cuda.say(where, "oom")
    assert "other processes of this job hold 107.00 MiB of the 512.00 MiB of device 0" in text
    assert "use a device each (CUDA_VISIBLE_DEVICES" in text
    uses = [g for p in cuda.show(where)["processes"] for g in p["gpus"]]
    (use,) = [u for u in uses if u["pool_bytes"] >= 150 * MIB]
    assert use["job_bytes"] == use["others_bytes"] == 107 * MIB
    text = cuda.say(where)
    assert "other processes of this job 107.00 MiB, processes of others and the driver 0 B" in text
    assert ("of this job used 107.00 MiB of device 0 and is not in this recording" in text) == (how != "recorded")


@pytest.mark.needs("root")
@pytest.mark.needs("unshare")
def test_a_job_that_is_the_first_process_of_a_container(cuda):
    where = cuda.tmp / "out"
    env = {**cuda.env, **SMALL, "SIM_GPU_STATE": str(cuda.tmp / "gpus"), "SIM_CUDA_CONTEXT_MIB": "100"}
    family = ["/usr/bin/python3", "-c", FAMILY, "own", cuda.program, "runtime", "hold", "/usr/bin/python3", "-c", HOLDS]
    words = ["unshare", "--pid", "--fork", "--mount-proc", *cuda.command(where), *family]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    text = cuda.say(where)
    assert "of this job used 107.00 MiB of device 0 and is not in this recording" in text, text


def test_numbers_of_another_container(cuda):
    """The driver lists those of the host, among them one that a process of the job has here; none is the job's own."""
    where = cuda.tmp / "out"
    lists = ["/bin/sh", "-c", 'sleep 4 & SIM_GPU_PID=$! exec "$@"', "sh"]
    words = [*lists, *cuda.command(where), "/usr/bin/python3", "-c", HOLDS]
    done = subprocess.run(words, env={**cuda.env, **SMALL}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    text = cuda.say(where)
    assert "is not in this recording" not in text and "not recorded" not in done.stderr, done.stderr
    (use,) = [g for p in cuda.show(where)["processes"] for g in p["gpus"]]
    assert use["others_bytes"] is None  # it was looked at


def test_memory_that_the_job_and_others_hold(cuda):
    helper = ["-c", FAMILY, "given", cuda.program, "runtime", "hold"]
    words = ["/usr/bin/python3", *helper, "/usr/bin/python3", "-c", REFUSED_LATE]
    _, where = beside_another(cuda, words, **SMALL, SIM_CUDA_CONTEXT_MIB="100")
    verdict, memory = why_refused(cuda, where)
    assert (verdict, memory["others"], memory["job"]) == ("other process", 214, 107)
    assert "other processes hold 214.00 MiB (107.00 MiB of it processes of this same job)" in cuda.say(where, "oom")


def test_pools_of_the_driver_are_nobody_elses(cuda):
    """Without NVML: what is in use and not the job's blocks may be its own context, or others'."""
    program = str(cuda.build / "targets" / "cuda_odd")
    _, _, where = cuda.record("fill", "120", program=program, SIM_GPU_MEMORY_MIB="512")
    text = cuda.say(where, "oom")
    assert "real exhaustion" in text and "other processes hold" not in text
    assert "its context, pools of the driver and others 256.00 MiB" in text


def test_numbers_of_the_device_that_the_job_means(cuda):
    """It calls device 3 of the machine its device 0, by UUID; others use that one, and no other."""
    named = "GPU-00000000-0000-0000-0000-000000000003"
    env = {"SIM_GPU_COUNT": "4", "SIM_GPU_MEMORY_MIB": "300", "CUDA_VISIBLE_DEVICES": named}
    _, where = beside_another(cuda, [cuda.build / "targets" / "cuda_odd", "full"], **env)
    assert "other processes hold 263.00 MiB" in cuda.say(where, "oom")


KEPT = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context, at = ctypes.c_void_p(), ctypes.c_ulonglong()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAllocAsync(ctypes.byref(at), ctypes.c_size_t(5 << 20), None) == 0
for _ in range(30):
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 20)) == 0
    time.sleep(0.05)
"""


def test_what_pools_of_the_driver_keep(cuda):
    """A pool grows by 32 MiB and has handed out 5: the rest of NVML's figure is not called context."""
    env = {"SIM_GPU_COUNT": "1", "SIM_GPU_STATE": str(cuda.tmp / "gpus")}
    _, _, where = cuda.record("-c", KEPT, program="/usr/bin/python3", **env)
    (use,) = cuda.show(where)["processes"][0]["gpus"]
    blocks = use["pool_bytes"] // MIB
    assert use["kept_bytes"] == 27 * MIB and 5 < blocks <= 35
    # a block may come between a sample and the rows that have it
    assert abs(use["used_bytes"] - (256 + 27 + blocks) * MIB) <= 2 * MIB
    rest = (use["rest_of_process_bytes"] or 0) + (use["not_told_bytes"] or 0)
    assert abs(rest - 256 * MIB) <= 2 * MIB
    text = cuda.say(where)
    assert "the driver's pools kept 27.00 MiB for it" in text and "its tensors" not in text


# --- words at the end, without a question ---

REFUSED = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, at = ctypes.c_void_p(), ctypes.c_ulonglong()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def ask_for_too_much():
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 40)) == 2
ask_for_too_much()
"""


def last_words(cuda, command, *words, **env):
    """Of a job whose stderr is a file."""
    with open(cuda.tmp / "said", "w+", encoding="utf-8") as said:
        subprocess.run([*command, "--", *words], env={**cuda.env, **env}, stderr=said, timeout=60, check=True)
        said.seek(0)
        return said.read().splitlines()


@pytest.mark.parametrize("command", ["msmemscope", "sonde mem record"])
def test_who_is_refused_memory_hears_of_the_command(cuda, command):
    """And the default shows the line that asked."""
    where = cuda.tmp / "refused"
    first, *rest = command.split()
    words = [cuda.build / "bin" / first, *rest, f"--output={where}"]
    lines = last_words(cuda, words, "/usr/bin/python3", "-c", REFUSED)
    (recording,) = where.glob("recording_*")
    assert lines[-1].endswith(f"Memory was refused once; this says why: sonde mem oom {recording}")
    assert "in ask_for_too_much (<string>:8)" in cuda.say(where, "oom")


@pytest.mark.parametrize("command", ["msmemscope", "sonde mem record"])
def test_why_there_is_nothing(cuda, command):
    first, *rest = command.split()
    words = [cuda.build / "bin" / first, *rest, f"--output={cuda.tmp / 'none'}"]
    lines = last_words(cuda, words, cuda.program, "runtime", "all", CUDA_VISIBLE_DEVICES="-1")
    assert "which found no GPU; CUDA_VISIBLE_DEVICES was '-1'" in lines[-1]


# --- ways around us, and others beside us ---

AROUND = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
	int deep = argc > 2 && !strcmp(argv[2], "deepbind");
	void *lib = deep ? dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND) : dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
	int (*work)(void) = lib ? (int (*)(void))dlsym(lib, "work") : 0;

	if (!work)
		return puts(dlerror());
	printf("%d %d\n", work(), dlerror() != 0);
	return 0;
}
"""

WORK = r"""
#include <stddef.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t);
int work(void)
{
	unsigned long long at;
	void *context;
	return cuInit(0) + cuDevicePrimaryCtxRetain(&context, 0) + cuCtxSetCurrent(context) +
	       cuMemAlloc_v2(&at, 1 << 20);
}
"""

# As CUDA's runtime does it; and what it asks of the program must not be what it asked itself.
LOOKING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
int work(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *context;
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(lib, "cuDevicePrimaryCtxRetain");
	int (*set)(void *) = (int (*)(void *))dlvsym(lib, "cuCtxSetCurrent", "NONE");
	int (*alloc)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))dlsym(lib, "cuMemAlloc_v2");
	unsigned long long at;
	if (!set)
		set = (int (*)(void *))dlsym(lib, "cuCtxSetCurrent");
	(void)dlerror();
	return init(0) + retain(&context, 0) + set(context) + alloc(&at, 1 << 20) + !dlsym(RTLD_NEXT, "strlen");
}
"""

NESTED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
int work(void)
{
	void *lib = dlopen("INNER", RTLD_NOW | RTLD_DEEPBIND);
	return lib ? ((int (*)(void))dlsym(lib, "work"))() : 99;
}
"""


@pytest.fixture
def around(cuda):
    """Records a program that loads the library in one of the ways past us; the rows, and where."""
    (cuda.tmp / "around.c").write_text(AROUND)
    job = cuda.tmp / "around"
    subprocess.run(["cc", cuda.tmp / "around.c", "-o", job, "-ldl"], check=True)

    def run(lib, how, **env):
        said, rows, where = cuda.record(lib, how, program=job, **env)
        assert said == cuda.plain(lib, how, program=job, **env) == "0 0\n"
        return rows, where

    return run


@pytest.mark.needs("cc")
@pytest.mark.parametrize("how", ["lazy", "now", "looking", "nested", "searched"])
def test_libraries_that_are_bound_deeply(cuda, around, how):
    """RTLD_DEEPBIND: linked with the driver, or looking for it; by way of another such library; by a name
    that is searched for."""
    link = ["-L", cuda.build / "sim", "-lcuda", "-Wl,-z,relro", f"-Wl,-z,{'lazy' if how == 'lazy' else 'now'}"]
    lib = build_library(cuda, "libwork", LOOKING if how == "looking" else WORK, *link)
    if how == "nested":
        lib = build_library(cuda, "libouter", NESTED.replace("INNER", str(lib)))
    path = f"{cuda.tmp}:{cuda.build / 'sim'}"
    rows, _ = around(lib.name if how == "searched" else lib, "deepbind", LD_LIBRARY_PATH=path)
    assert sizes(split(rows)[0]) == [MIB]
    assert {r["attr"]["owner"] for r in rows} == {"CUDA@libwork"}


@pytest.mark.needs("cc")
def test_what_a_deeply_bound_library_brings_itself(cuda, around):
    """A function of the driver's name that is its own is not the driver's."""
    own = "int cuMemAlloc_v2(unsigned long long *out, unsigned long bytes) { *out = bytes; return 0; }\n"
    link = ["-L", cuda.build / "sim", "-lcuda"]
    inner = build_library(cuda, "libinner", own)
    lib = build_library(cuda, "libwork", WORK, inner, f"-Wl,-rpath,{cuda.tmp}", *link)
    rows, _ = around(lib, "deepbind", LD_LIBRARY_PATH=f"{cuda.tmp}:{cuda.build / 'sim'}")
    assert not rows


@pytest.mark.needs("cc")
def test_libraries_that_are_bound_past_us(cuda, around):
    """In a namespace of their own: not recorded, as without us, and that is said."""
    rows, where = around(build_library(cuda, "libwork", WORK, "-L", cuda.build / "sim", "-lcuda"), "dlmopen")
    assert not rows
    text = cuda.say(where)
    assert "The job loaded libcuda.so.1, and no call of it was seen" in text
    assert "passes over preloaded libraries (dlmopen)" in text


AUDITOR = r"""
#include <link.h>
unsigned la_version(unsigned version) { return version < 2 ? version : 2; }
unsigned la_objopen(struct link_map *o, Lmid_t id, uintptr_t *cookie) { return LA_FLG_BINDTO | LA_FLG_BINDFROM; }
uintptr_t la_symbind64(Elf64_Sym *s, unsigned n, uintptr_t *from, uintptr_t *to, unsigned *flags, const char *name)
{
	return s->st_value;
}
"""


@pytest.mark.needs("cc")
@pytest.mark.parametrize("way", ["runtime", "dlsym"])
def test_a_job_with_an_auditor(cuda, way):
    """LD_AUDIT, which sees each binding."""
    source = AUDITOR if os.uname().machine == "x86_64" else AUDITOR.replace("la_symbind64", "not_called")
    audit = build_library(cuda, "libaudit", "#define _GNU_SOURCE\n" + source)
    env = {"LD_AUDIT": str(audit)}
    said, rows, _ = cuda.record(way, "all", **env)
    assert said == cuda.plain(way, "all", **env)
    assert len(split(rows)[0]) == 8


INJECTED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
/* as tools do that the driver brings in: it asks for functions, and has memory of its own */
int InitializeInjection(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *context;
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(lib, "cuDevicePrimaryCtxRetain");
	int (*set)(void *) = (int (*)(void *))dlsym(lib, "cuCtxSetCurrent");
	int (*alloc)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))dlsym(lib, "cuMemAlloc_v2");
	unsigned long long at;
	return !retain(&context, 0) && !set(context) && !alloc(&at, 9 << 20);
}
"""


@pytest.mark.needs("cc")
def test_a_tool_that_the_driver_brings_in(cuda):
    """CUDA_INJECTION64_PATH, while the job initialises CUDA; and our own monitor in the same way."""
    tool = build_library(cuda, "libtool", INJECTED)
    monitor = cuda.build / "lib" / "libsonde_monitor.so"
    for path, blocks in ((tool, 9), (monitor, 8)):
        env = {"CUDA_INJECTION64_PATH": str(path)}
        said, rows, _ = cuda.record("runtime", "all", **env)
        assert said == cuda.plain("runtime", "all", **env)
        made, _ = split(rows)
        assert len(made) == blocks
        mine = [r for r in made if int(r["attr"]["size"]) == 9 * MIB]
        assert [r["attr"]["owner"] for r in mine] == ["CUDA@libtool"] * (blocks - 8)
