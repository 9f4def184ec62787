# SPDX-License-Identifier: MulanPSL-2.0
"""The simulated Ascend stack keeps its promises: the ABI that hooks rely on, and jobs that repeat."""
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from capabilities import needs
from harness import process_state
from waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("SONDE_BUILD", "build"))
SIM = (BUILD if BUILD.is_absolute() else ROOT / BUILD) / "sim"
MIB = 1 << 20


@pytest.fixture
def env(tmp_path):
    """A machine of its own: nobody else's jobs count, nobody's tool is preloaded."""
    e = {k: v for k, v in os.environ.items() if not k.startswith(("SIM_", "LD_PRELOAD", "MSTX_"))}
    e["SIM_NPU_STATE"] = str(tmp_path / "npu")
    return e


def train(env, *args, **kw):
    return subprocess.run([SIM / "simtrain", *map(str, args)], env=env, text=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)


def compile_c(tmp_path, name, source, *flags, cc="cc", suffix=".c"):
    src = tmp_path / (name + suffix)
    src.write_text(source)
    out = tmp_path / name
    subprocess.run([cc, "-g", "-O1", "-D_GNU_SOURCE", f"-I{ROOT}/sim/include", src, "-o", out, *flags,
                    f"-L{SIM}", f"-Wl,-rpath,{SIM}", "-lpthread", "-ldl"], check=True, timeout=60)
    return out


def in_python(env, code):
    """Runs code in a fresh interpreter: the simulator reads its environment once per process."""
    head = f"import ctypes, os, sys\nSIM = {str(SIM)!r}\n"
    r = subprocess.run([sys.executable, "-c", head + code], env=env, text=True, timeout=60,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert r.returncode == 0, r.stderr
    return r.stdout.split()


# --- jobs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [
    ["--pool", "pta"], ["--pool", "mindspore", "--aten"], ["--pool", "atb", "--aten"],
    ["--pool", "hal"], ["--devices", 3, "--procs", 2, "--threads", 3],
])
def test_a_seed_gives_the_same_output_every_time(env, args):
    runs = [train(env, "--steps", 4, *args) for _ in range(3)]
    assert [r.returncode for r in runs] == [0, 0, 0], runs[0].stderr
    assert runs[0].stdout == runs[1].stdout == runs[2].stdout
    assert runs[0].stderr == ""
    assert runs[0].stdout.splitlines()[-1].startswith("result ")
    assert len(runs[0].stdout.splitlines()) == 6


def test_seeds_differ(env):
    assert train(env, "--seed", 1).stdout != train(env, "--seed", 2).stdout


def test_quiet_prints_only_the_result(env):
    assert len(train(env, "--quiet").stdout.splitlines()) == 1


@pytest.mark.parametrize("fault", ["leak", "leak:4096", "early", "late", "idle", "oob", "oom"])
@pytest.mark.parametrize("pool", ["pta", "mindspore", "atb", "hal"])
def test_a_fault_is_carried_out_and_survived(env, fault, pool):
    r = train(env, "--fault", fault, "--pool", pool, "--steps", 4)
    assert r.returncode == 0, r.stderr
    said = [line for line in r.stdout.splitlines() if line.startswith("fault ")]
    name = fault.split(":")[0]
    assert said[0].startswith(f"fault step 3 {name}")
    assert len(said) == (2 if name == "leak" else 1)
    if name == "oob":
        assert said[0].endswith("neighbour overwritten")
    if name == "oom":
        assert said[0].endswith("allocation failed")


@pytest.mark.parametrize("how,status", [
    ("segv", -signal.SIGSEGV), ("abort", -signal.SIGABRT), ("kill", -signal.SIGKILL), ("exit", 3)])
def test_crash(env, how, status):
    r = train(env, "--fault", f"crash:{how}", "--fault-step", 2)
    assert r.returncode == status
    assert r.stdout.splitlines()[-1] == "fault step 2 crash"


@pytest.mark.parametrize("args", [["--steps", "x"], ["--fault", "no"], ["--pool", "x"], ["--no"], ["x"]])
def test_wrong_options_are_refused_in_words(env, args):
    r = train(env, *args)
    assert r.returncode == 2
    assert r.stdout == "" and "simtrain" in r.stderr


# --- the driver -------------------------------------------------------------------------------------

HAL = """
hal = ctypes.CDLL(SIM + '/libascend_hal.so')
P, U = ctypes.c_void_p, ctypes.c_ulonglong
def alloc(size, flag=1 << 10, fn=hal.halMemAlloc):
    p = P()
    r = fn(ctypes.byref(p), U(size), U(flag))
    return r, p
"""


def test_out_of_memory_is_code_6_and_recoverable(env):
    out = in_python(dict(env, SIM_NPU_HBM_MB="64"), HAL + """
blocks = []
while True:
    r, p = alloc(8 << 20)
    if r: break
    blocks.append(p)
print(len(blocks), r)
print(hal.halMemFree(blocks[0]), alloc(8 << 20)[0], alloc(1)[0], alloc(1, 1 << 10 | 1)[0])
""")
    assert out == ["8", "6", "0", "0", "6", "0"]


def test_codes_of_wrong_calls(env):
    out = in_python(env, HAL + """
r, p = alloc(4096)
print(hal.halMemFree(p), hal.halMemFree(p), hal.halMemFree(P(0x1234)), hal.halMemFree(None))
print(alloc(0)[0], alloc(1, 1 << 10 | 9)[0], alloc(1, 5 << 10)[0], alloc(1, fn=hal.halMemAllocInner)[0])
""")
    assert out == ["0", "3", "3", "3", "8", "2", "5", "0"]


def test_pages_and_host_memory_are_accounted_as_the_flags_say(env):
    out = in_python(env, HAL + """
s = ctypes.CDLL(SIM + '/libsimstate.so')
s.sim_state_used.restype = U
seen = []
for flag in (0, 1 << 17, 1 << 31, 2 << 10):
    before = s.sim_state_used(3)
    r, p = alloc(5000, 3 | 1 << 14 | flag)
    seen.append(s.sim_state_used(3) - before)
    ctypes.memset(p, 7, 5000)
    assert hal.halMemFree(p) == 0
print(*seen, s.sim_state_used(3))
""")
    assert out == ["8192", str(2 * MIB), str(1 << 30), "0", "0"]


def test_created_memory_is_released_not_freed(env):
    out = in_python(env, HAL + """
prop = (ctypes.c_uint32 * 8)(1, 2, 33, 1, 0, 0, 0, 0)
h = P()
print(hal.halMemCreate(ctypes.byref(h), ctypes.c_size_t(3 << 20), prop, ctypes.c_uint64(0)))
print(hal.halMemFree(h), hal.halMemRelease(h), hal.halMemRelease(h))
""")
    assert out == ["0", "3", "0", "3"]


def test_a_fork_owns_no_device_memory(env):
    out = in_python(env, HAL + """
r, p = alloc(1 << 20)
pid = os.fork()
if pid == 0:
    ok = hal.halMemFree(p) == 3 and alloc(4096)[0] == 0
    os._exit(0 if ok else 1)
print(os.waitpid(pid, 0)[1], hal.halMemFree(p))
""")
    assert out == ["0", "0"]


def test_without_backing_addresses_are_still_distinct(env):
    out = in_python(dict(env, SIM_NPU_NOBACK="1"), HAL + """
a = {alloc(4096)[1].value for _ in range(100)}
print(len(a), hal.sim_hal_backed(P(min(a))))
""")
    assert out == ["100", "0"]
    assert train(dict(env, SIM_NPU_NOBACK="1"), "--quiet").returncode == 0


# --- what other processes see -----------------------------------------------------------------------


def smi(env, *args):
    return subprocess.run([SIM / "npu-smi", *args], env=env, text=True, check=True, timeout=30,
                          stdout=subprocess.PIPE).stdout


def rows(text, pid):
    return [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()
            if line.startswith("|") and f"| {pid} " in line]


def test_npu_smi_shows_a_running_job_and_forgets_a_killed_one(env):
    job = subprocess.Popen([SIM / "simtrain", "--steps", "100000", "--step-ms", "20", "--devices", "2"],
                           env=env, stdout=subprocess.PIPE, text=True)
    try:
        while not job.stdout.readline().startswith("step 2 "):
            assert job.poll() is None
        text = smi(env, "info")
        shown = rows(text, job.pid)
        assert [r[0].split() for r in shown] == [["0", "0"], ["1", "0"]]
        assert all(r[2] == "simtrain" and int(r[3]) > 20 for r in shown)
        assert "No running processes found in NPU 2" in text
        assert str(job.pid) in smi(env, "info", "-t", "proc-mem", "-i", "1")
        assert len({len(line) for line in text.splitlines()}) == 1, "the boxes line up"
        os.kill(job.pid, signal.SIGKILL)
        wait_until(lambda: process_state(job.pid) == "Z", "a zombie")  # not yet waited for
        assert not rows(smi(env, "info"), job.pid)
    finally:
        job.kill()
        job.wait()
        job.stdout.close()
    assert not rows(smi(env, "info"), job.pid)


def test_memory_of_a_killed_job_can_be_used_again(env):
    env = dict(env, SIM_NPU_HBM_MB="64")
    holder = HAL + "print(alloc(60 << 20)[0]); sys.stdout.flush(); os.kill(os.getpid(), 9)"
    for _ in range(3):
        r = subprocess.run([sys.executable, "-c", f"import ctypes, os, sys\nSIM={str(SIM)!r}\n" + holder],
                           env=env, stdout=subprocess.PIPE, text=True, timeout=30)
        assert r.stdout == "0\n" and r.returncode == -9


def test_npu_smi_other_pages(env):
    usages = smi(env, "info", "-t", "usages", "-i", "1")
    keys = [line.split(":")[0].strip() for line in usages.splitlines() if ":" in line]
    assert keys[:2] == ["NPU ID", "Chip Count"] and keys[-1] == "Chip ID"
    assert "Aicore Usage Rate(%)" in keys and "HBM Capacity(MB)" in keys
    assert "HBM Capacity(MB)" in smi(env, "info", "-t", "memory", "-i", "0")
    assert "Total Count" in smi(env, "info", "-l")
    assert len(smi(dict(env, SIM_NPU_COUNT="3"), "info", "-m").splitlines()) == 4


def test_dcmi(env):
    out = in_python(env, HAL + """
d = ctypes.CDLL(SIM + '/libdcmi.so')
n, l = ctypes.c_int(), (ctypes.c_int * 32)()
print(d.dcmi_get_card_list(ctypes.byref(n), l, 32) != 0, d.dcmi_init())
print(d.dcmi_get_card_list(ctypes.byref(n), l, 32), n.value, l[7])
logic = ctypes.c_int(-1)
print(d.dcmi_get_device_logic_id(ctypes.byref(logic), 5, 0), logic.value)
alloc(64 << 20, 1 << 10 | 5)
hbm = (ctypes.c_uint64 * 4)()
print(d.dcmi_get_device_hbm_info(5, 0, hbm), hbm[0], hbm[2])
proc = (ctypes.c_uint64 * 128)()
print(d.dcmi_get_npu_proc_mem_info(5, 0, proc, ctypes.byref(n)), n.value, proc[0] == os.getpid(), proc[1])
""")
    assert out == ["True", "0", "0", "8", "7", "0", "5", "0", "65536", "64",
                   "0", "1", "True", str(64 * MIB)]


# --- hooks --------------------------------------------------------------------------------------------

COUNTER = r"""
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdint.h>
static _Atomic long allocs, frees, launches, executes;
int halMemAlloc(void **p, unsigned long long n, unsigned long long f) {
	int (*real)(void **, unsigned long long, unsigned long long) = dlsym(RTLD_DEFAULT, "halMemAllocInner");
	int r = real(p, n, f);
	allocs += r == 0;
	return r;
}
int halMemFree(void *p) {
	int (*real)(void *) = dlsym(RTLD_DEFAULT, "halMemFreeInner");
	frees++;
	return real(p);
}
int aclrtLaunchKernelImpl(void *f, uint32_t b, const void *a, size_t n, void *s) {
	int (*real)(void *, uint32_t, const void *, size_t, void *) = dlsym(RTLD_NEXT, "aclrtLaunchKernelImpl");
	launches++;
	return real(f, b, a, n, s);
}
int _ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE(void *r, void *p) {
	int (*real)(void *, void *) = dlsym(RTLD_NEXT, "_ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE");
	executes++;
	return real(r, p);
}
__attribute__((destructor)) static void tell(void) {
	fprintf(stderr, "%ld %ld %ld %ld\n", allocs, frees, launches, executes);
}
"""


def test_replaced_functions_are_reached_from_every_library(env, tmp_path):
    lib = compile_c(tmp_path, "count.so", COUNTER, "-shared", "-fPIC")
    for pool in ("pta", "atb", "hal"):
        plain = train(env, "--pool", pool)
        r = train(dict(env, LD_PRELOAD=str(lib)), "--pool", pool)
        assert r.stdout == plain.stdout
        allocs, frees, launches, executes = map(int, r.stderr.split())
        assert allocs == frees > 3
        assert (executes > 50, launches > 50) == ((True, False) if pool == "atb" else (False, True))


def test_a_leak_is_never_freed(env, tmp_path):
    lib = compile_c(tmp_path, "count.so", COUNTER, "-shared", "-fPIC")
    r = train(dict(env, LD_PRELOAD=str(lib)), "--pool", "hal", "--steps", 7, "--fault", "leak", "--fault-step", 3)
    allocs, frees = map(int, r.stderr.split()[:2])
    assert allocs - frees == 5


INJECTOR = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mstx/ms_tools_ext.h"
static FILE *out;
static long handles = 1;
static int domain_of[8];
static const char *names[8];
static int n_domains;
static void mark(const char *m, void *s) { (void)s; if (strncmp(m, "memscope", 8)) fprintf(out, "mark %s\n", m); }
static mstxRangeId start(const char *m, void *s) { (void)s; fprintf(out, "start %s\n", m); return 7; }
static void end(mstxRangeId id) { fprintf(out, "end %lu\n", (unsigned long)id); }
static mstxDomainHandle_t create(const char *n) {
	names[n_domains] = n;
	fprintf(out, "domain %s\n", n);
	return (mstxDomainHandle_t)&domain_of[n_domains++];
}
static const char *name(mstxDomainHandle_t d) { return names[(int *)d - domain_of]; }
static mstxMemHeapHandle_t heap(mstxDomainHandle_t d, const mstxMemHeapDesc_t *h) {
	const mstxMemVirtualRangeDesc_t *r = h->typeSpecificDesc;
	fprintf(out, "heap %s %p %ld\n", name(d), r->ptr, (long)r->size);
	return getenv("DENY") ? NULL : (mstxMemHeapHandle_t)r->ptr;
}
static void unheap(mstxDomainHandle_t d, mstxMemHeapHandle_t h) { (void)h; fprintf(out, "unheap %s\n", name(d)); }
static void reg(mstxDomainHandle_t d, const mstxMemRegionsRegisterBatch_t *b) {
	const mstxMemVirtualRangeDesc_t *r = b->regionDescArray;
	fprintf(out, "region %s %p %ld %s\n", name(d), r->ptr, (long)r->size,
		(uintptr_t)b->heap == 0xa5a5a5a5a5a5a5a5ull ? "garbage" : "heap");
	if (!strcmp(name(d), "atb"))
		b->regionHandleArrayOut[0] = (mstxMemRegionHandle_t)handles++;
}
static void unreg(mstxDomainHandle_t d, const mstxMemRegionsUnregisterBatch_t *b) {
	fprintf(out, "unregion %s %d %p\n", name(d), b->refArray[0].refType, b->refArray[0].pointer);
}
int InitInjectionMstx(MstxGetModuleFuncTable get) {
	void *fill[4][6] = {{0}, {0, mark, start, end}, {0, create}, {0, heap, unheap, reg, unreg}};
	out = fopen(getenv("INJECT_OUT"), "a");
	setvbuf(out, NULL, _IOLBF, 0);
	for (int m = 1; m <= 4; m++) {
		MstxFuncTable t = NULL;
		unsigned size = 0;
		if (get(m, &t, &size)) { fprintf(out, "module %d none\n", m); continue; }
		fprintf(out, "module %d size %u sentinel %s first %s\n", m, size, t[size] ? "bad" : "null",
			t[0] ? "bad" : "unused");
		for (unsigned i = 1; i < size && i < 6; i++)
			if (fill[m][i])
				*t[i] = (MstxFuncPointer)fill[m][i];
	}
	return getenv("FAIL") ? 1 : 0;
}
"""


@pytest.fixture
def injector(tmp_path):
    return compile_c(tmp_path, "libascend_kernel_hook.so", INJECTOR, "-shared", "-fPIC")


def injected(env, tmp_path, *args, **extra):
    log = tmp_path / "inject.log"
    log.unlink(missing_ok=True)
    r = train(dict(env, INJECT_OUT=str(log), **extra), "--steps", 2, *args)
    assert r.returncode == 0, r.stderr
    return log.read_text().splitlines()


def test_mstx_tables(env, tmp_path, injector):
    log = injected(env, tmp_path, MSTX_INJECTION_PATH=str(injector))
    assert log[:4] == ["module 1 size 4 sentinel null first unused", "module 2 size 6 sentinel null first unused",
                       "module 3 size 5 sentinel null first unused", "module 4 none"]
    assert [x for x in log if x.startswith(("start", "end"))] == ["start step start", "end 7"] * 2
    assert log.count("mark backward") == 2
    # Injected but not preloaded under the magic name: the framework stays silent.
    assert not [x for x in log if x.startswith("region")]


def test_mstx_that_fails_is_silent_and_harmless(env, tmp_path, injector):
    plain = train(env, "--steps", 2)
    log = injected(env, tmp_path, MSTX_INJECTION_PATH=str(injector), FAIL="1")
    assert len(log) == 4
    assert train(dict(env, MSTX_INJECTION_PATH="/nonexistent"), "--steps", 2).stdout == plain.stdout


def test_older_mstx_has_fewer_modules(env, tmp_path, injector):
    log = injected(env, tmp_path, LD_PRELOAD=str(injector), SIM_MSTX_MODULES="1")
    assert log[1:4] == ["module 2 none", "module 3 none", "module 4 none"]


def blocks(log, domain):
    return [x.split() for x in log if len(x.split()) > 1 and x.split()[1] == domain]


def test_torch_pool_reports_reserved_bytes_then_the_block(env, tmp_path, injector):
    log = injected(env, tmp_path, LD_PRELOAD=str(injector))
    events = blocks(log, "ptaCaching")[1:]
    live = {}
    for before, after in zip(events[::2], events[1::2]):
        assert before[0] == "heap" and before[2] == after[2 if after[0] == "region" else 3]
        if after[0] == "region":
            assert after[4] == "garbage"
            live[after[2]] = after
        else:
            assert after[2] == "0"
            del live[after[3]]
    assert not live
    assert all(e[0] != "heap" for e in blocks(log, "ptaWorkspace"))
    assert any(e[0] == "region" for e in blocks(log, "ptaWorkspace"))


def test_mindspore_pool_reports_the_block_first(env, tmp_path, injector):
    events = blocks(injected(env, tmp_path, "--pool", "mindspore", LD_PRELOAD=str(injector)), "mindsporeMemPool")[1:]
    assert {e[0] for e in events[::2]} == {"region", "unregion"}
    assert {e[0] for e in events[1::2]} == {"heap"}


def test_atb_pool_uses_handles_and_stops_without_a_heap(env, tmp_path, injector):
    events = blocks(injected(env, tmp_path, "--pool", "atb", LD_PRELOAD=str(injector)), "atb")
    regions = [e for e in events if e[0] == "region"]
    gone = [e for e in events if e[0] == "unregion"]
    assert len(regions) == len(gone) > 10 and {e[2] for e in gone} == {"1"}
    assert {e[4] for e in regions} == {"heap"}
    assert len([e for e in events if e[0] == "heap"]) == len([e for e in events if e[0] == "unheap"])
    denied = blocks(injected(env, tmp_path, "--pool", "atb", LD_PRELOAD=str(injector), DENY="1"), "atb")
    assert [e[0] for e in denied] == ["domain", "heap"]


PROFILER = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "acl/acl.h"
#include "hal/ascend_hal.h"
#include "prof/prof_api.h"
#include "sim/kernel.h"
static int tracks, apis, hashed, stream, task;
static uint64_t last;
static uint64_t hash(const char *s, size_t n) { hashed += n == strlen("MatMulV2") && !strncmp(s, "MatMulV2", n); return 42; }
static int32_t compact(uint32_t aging, const void *d, uint32_t n) {
	const struct MsprofCompactInfo *c = d;
	(void)aging;
	if (n == 64 && c->magic == 0x5a5a && c->level == 5000 && c->type == 802) {
		tracks++;
		stream = c->data.task.streamId;
		task = c->data.task.taskInfo & 0xffff;
		last = c->data.task.nameHash;
	}
	return 0;
}
static int32_t api(uint32_t aging, const void *d) { (void)aging, (void)d; apis++; return 0; }
static struct MsprofCommand cmd = {.profSwitch = 0x800 | 0x4000000, .devNums = 1, .type = 1};
int main(void) {
	void *s, *k = sim_kernel_register("MatMulV2", 1000000, NULL);
	aclInit(NULL);
	aclrtSetDevice(0);
	aclrtCreateStream(&s);
	MsprofRegisterProfileCallback(12, (void *)hash, 8);
	MsprofRegisterProfileCallback(4, (void *)compact, 8);
	MsprofRegisterProfileCallback(9, (void *)api, 8);
	aclrtLaunchKernel(k, 1, NULL, 0, s);
	aclrtSynchronizeStream(s);
	int before = tracks;
	profSetProfCommand(&cmd, sizeof(cmd));
	uint32_t cfg[11] = {[0] = 1, [6] = 1};
	struct prof_start_para para = {0, 20, 1, cfg, 36};
	int started = prof_drv_start(0, 50, &para);
	int64_t freq = 0, count = 0;
	halGetDeviceInfo(0, 0, 25, &freq);
	halGetDeviceInfo(0, 0, 13, &count);
	for (int i = 0; i < 10; i++)
		aclrtLaunchKernel(k, 1, NULL, 0, s);
	aclrtSynchronizeStream(s);
	static struct stars_record rec[64];
	int n = prof_channel_read(0, 50, (char *)rec, sizeof(rec)) / 64;
	int ok = 1;
	for (int i = 0; i < n; i++) {
		uint64_t at = rec[i].counter_lo | (uint64_t)rec[i].counter_hi << 32;
		ok &= rec[i].func_type == (i & 1) && rec[i].stream_id == stream && at >= (uint64_t)count;
		if (i & 1) {
			uint64_t from = rec[i - 1].counter_lo | (uint64_t)rec[i - 1].counter_hi << 32;
			double us = (double)(at - from) * 1e3 / (double)freq;
			ok &= us > 450 && us < 550; /* 1 ms x SIM_NPU_TIME_SCALE */
			ok &= rec[i].task_id == rec[i - 1].task_id;
		}
	}
	prof_stop(0, 50);
	int stopped = prof_channel_read(0, 50, (char *)rec, sizeof(rec));
	printf("%d %d %d %d %d %d %d %d %d\n", before, tracks, apis, hashed, last == 42, started, n, ok && task == rec[n - 1].task_id, stopped);
	return 0;
}
"""


def test_launches_are_reported_and_executions_recorded(env, tmp_path):
    prog = compile_c(tmp_path, "profiler", PROFILER, "-lascendcl", "-lruntime", "-lprofapi", "-lascend_hal")
    r = subprocess.run([prog], env=dict(env, SIM_NPU_TIME_SCALE="0.5"), text=True, timeout=30,
                       stdout=subprocess.PIPE)
    assert r.stdout.split() == ["0", "10", "10", "10", "1", "0", "20", "1", "-4"]


ATB_HOOK = r"""
#include <cstdio>
#include <cstdint>
#include <string>
#include <dlfcn.h>
extern "C" int _ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE(void *self, char *pack)
{
	using Name = std::string (*)(const void *);
	using Run = int (*)(void *, void *);
	const char *sym = _GLIBCXX_USE_CXX11_ABI ? "_ZNK3atb6Runner16GetOperationNameB5cxx11Ev" : "_ZNK3atb6Runner16GetOperationNameEv";
	std::string name = ((Name)dlsym(RTLD_NEXT, sym))(self);
	std::fprintf(stderr, "op %s in %lu\n", name.c_str(), *(unsigned long *)(pack + 8));
	return ((Run)dlsym(RTLD_NEXT, "_ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE"))(self, pack);
}
namespace atb { struct Probe { static bool IsSaveTensorBefore(); static bool IsSaveTensorAfter();
	static bool IsExecuteCountInRange(unsigned long); static bool IsTensorNeedSave(const void *, const std::string &); }; }
extern "C" {
bool _ZN3atb5Probe21IsExecuteCountInRangeEm(unsigned long) { return true; }
bool _ZN3atb5Probe18IsSaveTensorBeforeEv() { return true; }
bool _ZN3atb5Probe17IsSaveTensorAfterEv() { return true; }
#if _GLIBCXX_USE_CXX11_ABI
# define S "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#else
# define S "Ss"
#endif
bool need(const void *, const std::string &) __asm__("_ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERK" S);
bool need(const void *, const std::string &n) { return !n.empty(); }
void save(void *, const void *, const std::string &) __asm__("_ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERK" S);
void save(void *, const void *param, const std::string &dir)
{
	using Get = char *(*)(const void *);
	char *in = ((Get)dlsym(RTLD_NEXT, "_ZN3Mki11LaunchParam12GetInTensorsEv"))(param);
	std::fprintf(stderr, "save %s %lu %s\n", dir.c_str(), *(unsigned long *)(in + 22736), *(void **)(in + 440) ? "data" : "none");
}
}
"""


@pytest.mark.needs("c++")
@pytest.mark.parametrize("abi", [1, 0])
def test_atb_speaks_both_string_abis(env, tmp_path, abi):
    if abi == 0:
        needs("x86-64")  # the old string ABI is simulated there only
    lib = compile_c(tmp_path, "atb.so", ATB_HOOK, "-shared", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
                    cc="c++", suffix=".cc")
    r = train(dict(env, LD_PRELOAD=str(lib), SIM_ATB_ABI=str(abi)), "--pool", "atb", "--steps", 1)
    lines = r.stderr.splitlines()
    ops = [x for x in lines if x.startswith("op ")]
    saves = [x for x in lines if x.startswith("save ")]
    assert "op FlashAttentionScore in 1" in ops and len(saves) == 2 * len(ops) > 20
    assert saves[0].endswith("/0_MatMulV2/before 2 data") and saves[1].split()[1].endswith("/after")
    assert r.stdout == train(env, "--pool", "atb", "--steps", 1).stdout


def test_visible_devices_map_logical_to_physical(env, tmp_path):
    out = in_python(dict(env, ASCEND_RT_VISIBLE_DEVICES="5,2"), """
a = ctypes.CDLL(SIM + '/libascendcl.so')
s = ctypes.CDLL(SIM + '/libsimstate.so')
s.sim_state_used.restype = ctypes.c_uint64
d, p = ctypes.c_int(), ctypes.c_void_p()
print(a.aclrtGetDevice(ctypes.byref(d)), a.aclrtSetDevice(2), a.aclrtSetDevice(1))
print(a.aclrtMalloc(ctypes.byref(p), ctypes.c_size_t(1000), 0), s.sim_state_used(2), s.sim_state_used(1))
print(a.aclrtGetDevice(ctypes.byref(d)), d.value)
""")
    assert out == ["107002", "107001", "0", "0", "4096", "0", "0", "1"]
