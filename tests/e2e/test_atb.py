# SPDX-License-Identifier: MulanPSL-2.0
"""ATB: operators run exactly as without us, and are seen: on the simulator and against real C++."""

import collections
import os
import re
import subprocess

import pytest

from capabilities import needs

BOTH = ("--events=launch,access", "--level=op,kernel")
LIBS = ["libatb_abi_0_hook.so", "libatb_abi_1_hook.so"]
ORDERS = [LIBS[:1], LIBS[1:], LIBS, LIBS[::-1]]


def preload(build, libs):
    return {"LD_PRELOAD": ":".join(str(build / "lib" / n) for n in libs)}


def counts(rows, *events):
    return collections.Counter(r.type for r in rows if not events or r.event in events)


# --- the simulated library ---


@pytest.mark.parametrize("libs", ORDERS, ids=["abi0", "abi1", "abi0+1", "abi1+0"])
@pytest.mark.parametrize("abi", ["0", "1"])
def test_every_operator_runs_once_and_is_told_once(record, build, libs, abi):
    env = {"SIM_ATB_ABI": abi, **preload(build, libs)}
    plain = record.plain("atb_ops", 20)
    r = record("atb_ops", 20, opts=BOTH, env=env)
    assert r.stdout == plain.stdout == b"ran 20 left 0\n"
    assert (r.stderr, r.returncode) == (plain.stderr, 0)
    n = counts(r.rows)
    assert n["ATB_START"] == n["ATB_END"] == 20
    assert n["KERNEL_START"] == n["KERNEL_END"] == 20
    # One tensor in, one out, before and after; of the operator and of the kernel.
    assert n["UNKNOWN"] == n["WRITE"] == 80


def test_what_is_said(record, build):
    r = record("atb_ops", 1, opts=BOTH, env=preload(build, LIBS))
    pid = r.process.pid
    rows = [x for x in r.rows if x.event in ("OP_LAUNCH", "ACCESS") or "path" in x.attr]
    assert [x.type for x in rows] == (
        ["ATB_START", "UNKNOWN", "WRITE", "KERNEL_START", "UNKNOWN", "WRITE"]
        + ["UNKNOWN", "WRITE", "KERNEL_END", "UNKNOWN", "WRITE", "ATB_END"]
    )
    op, kernel = rows[0], rows[3]
    assert op.name == "LinearOperation" and kernel.name == "0_LinearKernel"
    path = f"0_{pid}/0_LinearOperation"
    assert op.attr["path"] == path
    assert re.fullmatch("0x12c[0-9a-f]+", op.attr["workspace_ptr"])
    assert op.attr["workspace_size"] == "2048"
    assert kernel.attr == {"path": f"{path}/0_LinearKernel/before"}
    assert rows[8].attr == {"path": f"{path}/0_LinearKernel/after"}
    first, second = rows[1], rows[2]
    assert first.name == "LinearOperation" and rows[4].name == "0_LinearKernel"
    assert first.attr["type"] == "ATB" and first.attr["size"] == "1024"
    assert int(first.ptr, 16) + 1024 == int(second.ptr, 16)
    text = [(x.attr["dtype"], x.attr["format"], x.attr["shape"]) for x in rows[1:3] + rows[4:6]]
    assert text == [
        ("ACL_BF16", "ACL_FORMAT_FRACTAL_NZ", "[4,8,16,]"),
        ("ACL_FLOAT", "ACL_FORMAT_ND", "[-1,64,]"),
        ("TENSOR_DTYPE_BF16", "TENSOR_FORMAT_FRACTAL_NZ", "[4,8,16,]"),
        ("TENSOR_DTYPE_FLOAT", "TENSOR_FORMAT_ND", "[-1,64,]"),
    ]
    assert {x.device for x in rows} == {"0"} and {x.tid for x in rows} == {str(pid)}


@pytest.mark.parametrize(
    "opts, wanted",
    [
        (("--events=launch", "--level=op"), {"ATB_START", "ATB_END"}),
        (("--events=launch", "--level=kernel"), {"KERNEL_START", "KERNEL_END"}),
        (("--events=access,launch", "--level=op"), {"ATB_START", "ATB_END", "UNKNOWN", "WRITE"}),
        (("--events=access", "--level=op"), {"UNKNOWN", "WRITE"}),
        (("--events=alloc,free",), set()),
    ],
)
def test_only_what_was_asked_for(record, build, opts, wanted):
    r = record("atb_ops", 4, opts=opts, env=preload(build, LIBS))
    assert r.stdout == b"ran 4 left 0\n"
    seen = {x.type for x in r.rows if x.event in ("OP_LAUNCH", "ACCESS") or "path" in x.attr}
    assert seen == wanted


def test_an_operator_left_in_the_middle_has_an_end(record, build):
    plain = record.plain("atb_ops", 30, "unwind")
    r = record("atb_ops", 30, "unwind", opts=BOTH, env=preload(build, LIBS))
    assert r.stdout == plain.stdout == b"ran 20 left 10\n"
    n = counts(r.rows)
    assert n["ATB_START"] == n["ATB_END"] == n["KERNEL_START"] == 30
    assert n["KERNEL_END"] == 20


@pytest.mark.parametrize("layout", ["old", "new"])
def test_a_training_job_is_the_same(record, build, layout):
    args = ["simtrain", "--pool", "atb", "--steps", 3, "--devices", 2, "--threads", 1]
    env = {"SIM_ATB_LAYOUT": layout}
    plain = record.plain(*args, env=env)
    opts = ("--events=alloc,free,launch,access", "--level=op,kernel")
    r = record(*args, opts=opts, env={**env, **preload(build, LIBS)})
    assert (r.stdout, r.stderr) == (plain.stdout, plain.stderr)
    n = counts(r.rows)
    assert n["ATB_START"] == n["ATB_END"] == n["KERNEL_LAUNCH"] == n["KERNEL_EXECUTE_END"] > 200


# --- real C++: mangled names, strings and exceptions as a compiler makes them ---

FAKE_ATB = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>
namespace Mki {
struct LaunchParam {
	char bytes[22744 * 2];
	void *GetInTensors();
	void *GetOutTensors();
};
void *LaunchParam::GetInTensors() { return bytes; }
void *LaunchParam::GetOutTensors() { return bytes + 22744; }
}
namespace atb {
struct RunnerVariantPack { char bytes[13900]; };
static int flag(const char *name) { return getenv(name) ? atoi(getenv(name)) : 0; }
struct Probe {
	static bool IsTensorNeedSave(const std::vector<int64_t> &, const std::string &);
	static bool IsSaveTensorAfter();
	static bool IsSaveTensorBefore();
	static bool IsExecuteCountInRange(const uint64_t);
	static bool IsSaveTensorDesc();
};
bool Probe::IsTensorNeedSave(const std::vector<int64_t> &, const std::string &n) { return flag("NEED") && n != "odd"; }
bool Probe::IsSaveTensorAfter() { return flag("AFTER"); }
bool Probe::IsSaveTensorBefore() { return flag("BEFORE"); }
bool Probe::IsExecuteCountInRange(const uint64_t n) { return (int)n < flag("RANGE"); }
bool Probe::IsSaveTensorDesc() { return flag("DESC"); }
struct StoreUtil {
	static void SaveLaunchParam(void *, const Mki::LaunchParam &, const std::string &);
};
void StoreUtil::SaveLaunchParam(void *, const Mki::LaunchParam &, const std::string &dir) {
	printf("saved %s desc %d\n", dir.c_str(), (int)Probe::IsSaveTensorDesc());
}
struct Runner {
	uint64_t count;
	std::string name;
	bool saved; /* settled before the execution, as in ATB */
	Runner(uint64_t c, const char *n) : count(c), name(n), saved(Probe::IsTensorNeedSave({1, 2}, n)) {}
	int Inner(RunnerVariantPack &);
	int Execute(RunnerVariantPack &);
	bool IsSaveTensor() const;
	std::string GetOperationName() const;
	std::string GetSaveTensorDir() const;
};
std::string Runner::GetOperationName() const { return name; }
std::string Runner::GetSaveTensorDir() const { return "dir/of/" + name; }
bool Runner::IsSaveTensor() const { return Probe::IsExecuteCountInRange(count) && saved; }
static Mki::LaunchParam param;
int Runner::Inner(RunnerVariantPack &pack) { return Runner(count, "inner").Execute(pack); }
int Runner::Execute(RunnerVariantPack &pack) {
	bool save = saved && Probe::IsExecuteCountInRange(count);
	if (IsSaveTensor())
		printf("operator %d saved\n", (int)count);
	std::string at = "dir/of/" + name + "/7_Kernel";
	if (save && Probe::IsSaveTensorBefore())
		StoreUtil::SaveLaunchParam(nullptr, param, at + "/before");
	if (name == "throws")
		throw std::runtime_error("as asked");
	if (name == "nested")
		Inner(pack);
	if (save && Probe::IsSaveTensorAfter())
		StoreUtil::SaveLaunchParam(nullptr, param, at + "/after");
	return (int)count;
}
}
extern "C" int fake_run(int count, const char *name, char *pack) {
	atb::Runner r((uint64_t)count, name);
	try {
		return r.Execute(*(atb::RunnerVariantPack *)pack);
	} catch (const std::runtime_error &e) {
		printf("caught %s\n", e.what());
		return -1;
	}
}
"""

FAKE_JOB = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "atb/atb.h"
int fake_run(int count, const char *name, char *pack);
int aclrtGetDeviceImpl(int32_t *out) { *out = 0; return 0; }
/* Names as arguments; "@N": N tensors from now on, "#N": each with N dimensions, "!": on the heap. */
int main(int argc, char **argv) {
	static struct atb_variant_pack pack;
	static struct atb_tensor heap[4];
	for (int i = 0; i < 65; i++)
		pack.in.inline_data[i] = (struct atb_tensor){.device = (char *)0x1000 + i, .bytes = 1};
	for (int i = 0; i < 4; i++)
		heap[i] = (struct atb_tensor){.device = (char *)0x9000 + i, .bytes = 1};
	for (int i = 1; i < argc; i++) {
		if (argv[i][0] == '@')
			pack.in.size = strtoull(argv[i] + 1, NULL, 0);
		else if (argv[i][0] == '#')
			pack.in.inline_data[0].dim_num = strtoull(argv[i] + 1, NULL, 0);
		else if (argv[i][0] == '!')
			pack.in.heap = heap;
		else
			printf("%s gave %d\n", argv[i], fake_run(i, argv[i], (char *)&pack));
		fflush(stdout);
	}
	return 0;
}
"""


@pytest.fixture(scope="module", params=["0", "1"], ids=["abi0", "abi1"])
def cxx_job(request, tmp_path_factory):
    """A libatb made by a C++ compiler, and a job that uses it."""
    gxx = needs("c++")
    place = tmp_path_factory.mktemp("cxx")
    lib, job = place / "libatb.so", place / "job"
    (place / "atb.cc").write_text(FAKE_ATB)
    (place / "job.c").write_text(FAKE_JOB)
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={request.param}"
    flags = ["-O1", "-g", "-fPIC", "-shared", "-Wl,-soname,libatb.so"]
    subprocess.run([gxx, "-std=c++14", abi, *flags, place / "atb.cc", "-o", lib], check=True)
    root = os.path.join(os.path.dirname(__file__), "../..")
    subprocess.run(
        ["cc", f"-I{root}/sim/include", place / "job.c", "-o", job, lib, "-rdynamic"]
        + [f"-Wl,-rpath,{place}"],
        check=True,
    )
    return job


@pytest.fixture
def cxx(record, build, cxx_job):
    """run(names…) of the job with and without us."""

    def run(*words, opts=BOTH, env=None, also=None):
        env, ours = dict(env or {}), preload(build, LIBS)
        if also:
            env["LD_PRELOAD"] = also
            ours["LD_PRELOAD"] += f":{also}"
        plain = record.plain(cxx_job, *words, env=env)
        r = record(cxx_job, *words, opts=opts, env={**env, **ours})
        assert (r.stdout, r.stderr, r.returncode) == (plain.stdout, plain.stderr, 0)
        return r

    return run


def ops(r):
    return [(x.type[4:], x.name) for x in r.rows if x.event == "OP_LAUNCH"]


def test_cxx_names_short_and_long(cxx):
    long = "x" * 300
    r = cxx("a", "exactly15chars_", "exactly16chars__", long)
    assert [n for t, n in ops(r) if t == "START"] == [
        "a",
        "exactly15chars_",
        "exactly16chars__",
        "x" * 254,
    ]
    assert r.of("OP_LAUNCH")[0].attr["path"] == "dir/of/a"
    assert r.of("OP_LAUNCH")[-1].attr["path"] == "dir/of/" + long
    assert {x.name for x in r.of("KERNEL_LAUNCH")} == {"7_Kernel"}


def test_cxx_exceptions_and_nesting(cxx):
    r = cxx("a", "throws", "nested", "throws", "b")
    assert r.stdout.count(b"caught as asked") == 2
    assert ops(r) == [
        ("START", "a"),
        ("END", "a"),
        ("START", "throws"),
        ("END", "throws"),
        ("START", "nested"),
        ("START", "inner"),
        ("END", "inner"),
        ("END", "nested"),
        ("START", "throws"),
        ("END", "throws"),
        ("START", "b"),
        ("END", "b"),
    ]


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"NEED": 1, "RANGE": 99, "BEFORE": 1, "AFTER": 1},
        {"NEED": 1, "RANGE": 99, "BEFORE": 1, "DESC": 1},
        {"NEED": 1, "RANGE": 3, "AFTER": 1},
        {"RANGE": 99, "BEFORE": 1, "AFTER": 1},
        {"NEED": 1, "BEFORE": 1, "AFTER": 1},
    ],
    ids=str,
)
def test_cxx_saves_exactly_what_the_user_asked_for(cxx, env):
    # Equal output with and without us is checked by the fixture: every save prints a line.
    r = cxx("a", "odd", "a", "odd", "a", env=env)
    n = counts(r.rows)
    assert n["KERNEL_START"] == n["KERNEL_END"] == 5, "and we see every kernel all the same"


def test_cxx_without_kernels_the_answers_are_atbs_own(cxx):
    r = cxx("a", "b", opts=("--events=launch", "--level=op"), env={"NEED": 1, "RANGE": 9, "AFTER": 1})
    assert r.stdout.count(b"saved dir/of/") == 2
    assert not r.of("KERNEL_LAUNCH") and len(ops(r)) == 4


TOOL = r"""
#include <stdbool.h>
#include <stdlib.h>
#define CXX11 NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define NEED _ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERK
static int asked;
bool PASTE(NEED, Ss)(void *ids, void *name) { (void)ids; (void)name; return ++asked % 2; }
bool PASTE(NEED, CXX11)(void *ids, void *name) { (void)ids; (void)name; return ++asked % 2; }
bool _ZN3atb5Probe21IsExecuteCountInRangeEm(unsigned long n) { return n != 3; }
bool _ZN3atb5Probe17IsSaveTensorAfterEv(void) { return atoi(getenv("TOOL")) & 1; } /* or crashes */
bool _ZN3atb5Probe18IsSaveTensorBeforeEv(void) { return atoi(getenv("TOOL")) & 2; }
bool _ZN3atb5Probe16IsSaveTensorDescEv(void) { return true; }
"""


def test_cxx_another_tool_that_answers_the_probes_decides_alone(cxx, tmp_path):
    (tmp_path / "tool.c").write_text(TOOL)
    tool = tmp_path / "libtool.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "tool.c", "-o", tool], check=True)
    r = cxx("a", "b", "c", "d", "e", env={"TOOL": 3}, also=tool)
    assert r.stdout.count(b"saved dir/of/") == 4, "a and e"
    assert r.stdout.count(b"operator") == 2
    n = counts(r.rows)
    assert n["KERNEL_START"] == n["KERNEL_END"] == 2


@pytest.mark.parametrize(
    "words, accesses",
    [
        (["@2", "a"], 4),
        (["@65", "a"], 130),
        (["@66", "a"], 0),
        (["@0xffffffffffffffff", "a"], 0),
        (["@2", "#8", "a"], 4),
        (["@2", "#9", "a"], 2),
        (["@2", "#0xffffffffffffffff", "a"], 2),
        (["!", "@4", "a"], 8),
        (["!", "@5000", "a"], 0),
    ],
    ids=str,
)
def test_cxx_tensors_that_make_no_sense_are_left_out(cxx, words, accesses):
    r = cxx(*words, opts=("--events=launch,access", "--level=op"))
    assert len(r.of("ACCESS")) == accesses
    assert ops(r) == [("START", "a"), ("END", "a")]
