# SPDX-License-Identifier: MulanPSL-2.0
"""Kernel launches and when the device really ran them."""

import collections
import re
import subprocess
import time

import pytest

KERNELS = ("--events=launch", "--level=kernel")
LAUNCH, START, END = "KERNEL_LAUNCH", "KERNEL_EXECUTE_START", "KERNEL_EXECUTE_END"


def tasks(rows):
    """{(device, stream, task): {type: row}} of rows that say where a kernel ran."""
    out = collections.defaultdict(dict)
    for r in rows:
        if r.event != "KERNEL_LAUNCH" or "streamId" not in r.attr:
            continue
        one = out[r.device, r.attr["streamId"], r.attr["taskId"]]
        assert r.type not in one, r
        one[r.type] = r
    return out


def check_tasks(rows):
    """Every launch has its execution, with one name, in the order of nature; returns how many."""
    found = tasks(rows)
    for one in found.values():
        assert set(one) == {LAUNCH, START, END}, one
        assert len({(r.name, r.pid) for r in one.values()}) == 1, one
        assert one[LAUNCH].time <= one[START].time <= one[END].time, one
        assert one[START].tid == one[END].tid != one[LAUNCH].tid
    return len(found)


@pytest.mark.parametrize("soc", ["Ascend910B3", "Ascend950PR"])
@pytest.mark.parametrize("expand", ["0", "1"])
def test_launches_and_executions_belong_together(record, soc, expand):
    env = {"SIM_NPU_SOC": soc, "SIM_NPU_STREAM_EXPAND": expand}
    args = ["simtrain", "--steps", 5, "--quiet"]
    plain = record.plain(*args, env=env)
    r = record(*args, opts=KERNELS, env=env)
    assert (r.stdout, r.stderr) == (plain.stdout, plain.stderr)
    assert check_tasks(r.rows) > 200
    assert {x.name for x in r.of("KERNEL_LAUNCH")} >= {"MatMulV2", "ApplyAdamW", "Add"}
    assert not any(x.name.startswith("0x") for x in r.of("KERNEL_LAUNCH"))


def test_times_are_the_devices(record):
    # 20 kernels of 50 us at 40 times the duration: 2 ms each, one after the other on each stream.
    r = record("atb_kernels", 20, opts=KERNELS, env={"SIM_NPU_TIME_SCALE": 40})
    assert check_tasks(r.rows) == 40
    streams = collections.defaultdict(list)
    for (_, stream, _), one in tasks(r.rows).items():
        streams[stream].append((one[START].time, one[END].time))
    assert len(streams) == 2
    for spans in streams.values():
        spans.sort()
        assert all(abs(end - begin - 2_000_000) <= 40 for begin, end in spans), "a tick is 20 ns"
        assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:]))


@pytest.mark.parametrize("strict", ["0", "1"])
def test_several_devices_and_processes(record, strict):
    args = ["simtrain", "--steps", 2, "--devices", 3, "--procs", 2, "--quiet"]
    r = record(*args, opts=KERNELS, env={"SIM_NPU_PROF_STRICT": strict})
    assert len(r.processes) == 2
    for p in r.processes:
        assert check_tasks(p.rows) > 200
        assert {x.pid for x in p.rows} == {str(p.pid)}
    assert {x.device for p in r.processes for x in p.rows} >= set("012345")


@pytest.mark.parametrize("device, number", [(0, "1"), (1, "2"), (2, "0")])
def test_devices_have_the_drivers_numbers(record, device, number):
    env = {"ASCEND_RT_VISIBLE_DEVICES": "1,2,0", "DEVICE": device}
    r = record("atb_kernels", 3, opts=KERNELS, env=env)
    assert check_tasks(r.rows) == 6
    assert {x.device for x in r.of("KERNEL_LAUNCH")} == {number}


def test_a_forked_child_starts_anew(record):
    r = record("atb_kernels", 10, "threads", "fork", "threads", opts=KERNELS)
    out = r.stdout.decode().split("\n")
    assert out[:3] == ["thread sonde-stars", "others 1", "others 0"], "the child begins without one"
    child = int(re.search(r"child (\d+)", r.stdout.decode()).group(1))
    by_pid = {p.pid: p.rows for p in r.processes}
    assert len(by_pid) == 2
    names = {pid: {x.name for x in rows if x.type == END} for pid, rows in by_pid.items()}
    assert names.pop(child) == {"FirstKernel", "ChildKernel"}
    assert list(names.values()) == [{"FirstKernel"}]
    assert sorted(check_tasks(rows) for rows in by_pid.values()) == [20, 40]


def test_after_finalize_it_can_start_again(record):
    r = record("atb_kernels", 10, "threads", "finalize", "threads", "again", "threads", opts=KERNELS)
    assert re.findall(r"others (\d)", r.stdout.decode()) == ["1", "0", "1"]
    assert collections.Counter(x.name for x in r.rows if x.type == END) == {
        "FirstKernel": 20,
        "LastKernel": 20,
    }


@pytest.mark.parametrize(
    "opts", [("--events=launch", "--level=op"), ("--events=alloc,free", "--level=kernel"), ()]
)
def test_no_thread_of_ours_unless_kernels_are_wanted(record, opts):
    r = record("atb_kernels", 3, "threads", opts=opts)
    assert r.stdout == b"others 0\n"
    assert not [x for p in r.processes for x in p.rows if x.event == "KERNEL_LAUNCH"]


def test_the_reader_takes_no_signals(record):
    r = record("atb_kernels", 3, "blocked", opts=KERNELS)
    # All but SIGKILL, SIGSTOP and, by the C library, its own two.
    (mask,) = re.findall(r"blocked ([0-9a-f]{16})", r.stdout.decode())
    assert int(mask, 16) | 1 << 8 | 1 << 18 | 3 << 31 == (1 << 64) - 1


@pytest.mark.parametrize("how, status", [("return", 0), ("exit", 5), ("_exit", 6)])
def test_the_end_is_not_delayed_and_nothing_read_is_lost(record, how, status):
    begin = time.monotonic()
    out, result = record.raw("atb_kernels", 5, how, opts=KERNELS)
    assert result.returncode == status
    assert time.monotonic() - begin < 5
    r = record.read(out, result)
    if how != "_exit":
        assert check_tasks(r.rows) == 10
    assert sum(x.type == LAUNCH for x in r.rows) == 10


COUNT_NAMES = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void sonde_collect_name(uint64_t hash, const char *text, size_t len) {
	void (*real)(uint64_t, const char *, size_t) = dlsym(RTLD_NEXT, "sonde_collect_name");
	FILE *f = fopen(getenv("NAMES"), "a");
	fprintf(f, "%.*s\n", (int)len, text);
	fclose(f);
	real(hash, text, len);
}
"""


def test_a_name_is_written_once(record, tmp_path):
    (tmp_path / "names.c").write_text(COUNT_NAMES)
    lib, names = tmp_path / "libnames.so", tmp_path / "names"
    subprocess.run(
        ["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", tmp_path / "names.c", "-o", lib], check=True
    )
    env = {"LD_PRELOAD": lib, "NAMES": names}
    r = record("atb_kernels", 500, "fork", "again", opts=KERNELS, env=env)
    # The child has a recording of its own and must say the first name again.
    assert names.read_text().split() == ["FirstKernel", "FirstKernel", "ChildKernel", "LastKernel"]
    assert sorted(check_tasks(p.rows) for p in r.processes) == [2000, 2000]


def test_without_the_profiling_channel_launches_remain(record, tmp_path):
    """A driver whose channel cannot be opened."""
    (tmp_path / "no.c").write_text("int prof_drv_start(unsigned d, unsigned c, void *p)"
                                   " { (void)d; (void)c; (void)p; return 8; }")
    lib = tmp_path / "libno.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "no.c", "-o", lib], check=True)
    r = record("atb_kernels", 5, "threads", opts=KERNELS, env={"LD_PRELOAD": lib})
    assert r.stdout == b"others 0\n"
    assert {x.type for x in r.of("KERNEL_LAUNCH")} == {LAUNCH}
    assert len(r.of("KERNEL_LAUNCH")) == 10


BAD_CLOCK = r"""
#include <stdint.h>
int halGetDeviceInfo(uint32_t d, int32_t m, int32_t info, int64_t *out) {
	(void)d; (void)m;
	if (info == 13 && ANSWER == 1) { *out = 1; return 0; }          /* a counter far in the past */
	if (info == 13 && ANSWER == 2) { *out = INT64_MAX; return 0; }  /* and in the future */
	if (info == 25 && ANSWER == 1) { *out = 1; return 0; }
	return 8;                                                        /* or no answer at all */
}
"""


@pytest.mark.parametrize("answer", [0, 1, 2])
def test_a_clock_that_makes_no_sense_spoils_no_order(record, tmp_path, answer):
    (tmp_path / "clock.c").write_text(BAD_CLOCK)
    lib = tmp_path / "libclock.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", f"-DANSWER={answer}", tmp_path / "clock.c", "-o", lib], check=True
    )
    begin = time.time_ns()
    r = record("atb_kernels", 10, opts=KERNELS, env={"LD_PRELOAD": lib})
    assert check_tasks(r.rows) == 20
    assert all(begin <= x.time <= time.time_ns() + 10**7 for x in r.of("KERNEL_LAUNCH"))
