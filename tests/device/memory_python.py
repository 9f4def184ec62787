# SPDX-License-Identifier: MulanPSL-2.0
"""Stages of memory.py: what Python tells of CUDA tensors, and that results stay the same."""

import collections
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys

from memory_dumps import balance, owned_bytes, rows_of

HERE = pathlib.Path(__file__).resolve().parent
JOB = HERE / "memory_python_job.py"
COST = HERE / "memory_cost_job.py"
MODEL = HERE / "memory_model.py"
DEVICE = [os.environ["SONDE_TEST_DEVICE"]] if "SONDE_TEST_DEVICE" in os.environ else []


def same(run, title, told):
    """If two runs that nobody looks at differ, a third that differs says nothing."""
    keys = [k for k in ("again", "recorded", "after") if k in told]
    differ = [k for k in keys if told[k] != told["plain"]]
    detail = f"differ from an unrecorded run: {', '.join(differ) or 'none'}, of {', '.join(keys)}"
    return run.check(f"{title}: results are the same to the bit", not differ, detail)


# --- operators and accesses ---


def operators(run):
    told, where = run.job("ops", file=JOB)
    same(run, "operators, accesses, four streams", told)
    rows = rows_of(where)
    launches = [r for r in rows if r["Event"] == "OP_LAUNCH"]
    accesses = [r for r in rows if r["Event"] == "ACCESS"]
    files = collections.Counter(r["file"] for r in launches + accesses)
    run.check("operators are in the files of the GPU", set(files) == {"device_0"}, dict(files))
    pairs = collections.Counter(r["Event Type"] for r in launches)
    run.check(
        "operators that began ended",
        len(launches) > 1000 and len(set(pairs.values())) == 1,
        dict(pairs),
    )
    lost = unresolved(rows)
    run.check(
        "each access is one of a block of the pool that is alive",
        accesses and not lost,
        f"{len(accesses)} accesses, {len(lost)} without; {lost[:3]}",
    )
    others = {r["Thread Id"] for r in launches} - {str(told["main"])}
    run.check("operators of autograd's thread are told", others, f"threads {sorted(others)}")
    check_exact(run, told["exact"], rows)
    if lost:
        run.keep(where, "operators")


def unresolved(rows):
    """Accesses that name no block, or one that is not there then, or that they are not in."""
    live, lost = {}, []
    for row in rows:
        a = row["attr"]
        if row["Event Type"] == "TORCH" and row["Event"] == "MALLOC":
            live[a["allocation_id"]] = (int(row["Ptr"], 16), int(a["size"]))
        elif row["Event Type"] == "TORCH" and row["Event"] == "FREE":
            live.pop(a["allocation_id"], None)
        elif row["Event"] == "ACCESS":
            start, size = live.get(a.get("allocation_id"), (0, 0))
            if a.get("type") != "TORCH" or not start <= int(row["Ptr"], 16) < start + size:
                lost.append({k: row[k] for k in ("ID", "Event Type", "Name", "Ptr", "Attr")})
    return lost


def check_exact(run, want, rows):
    """The last of each kind are those of the job's last lines."""
    blocks, found = {}, []
    for row in rows:
        a = row["attr"]
        if row["Event Type"] == "TORCH" and row["Event"] == "MALLOC":
            blocks[a["allocation_id"]] = int(row["Ptr"], 16)
        elif row["Event"] == "ACCESS":
            name = row["Name"].replace("torch._ops.", "")
            block = blocks.get(a.get("allocation_id"))
            found.append([name, row["Event Type"], int(row["Ptr"], 16), block])
    run.check(
        "mm() and a view: what is read, written, and of which block",
        found[-len(want) :] == want,
        found[-len(want) :],
    )


def corners(run):
    told, where = run.job("corners", file=JOB)
    bad = [k for k, v in told["plain"].items() if v != told["recorded"][k]]
    unsure = [k for k, v in told["plain"].items() if v != told["again"][k]]
    for name in bad:
        print(f"{name}\n  {told['plain'][name]}\n  {told['recorded'][name]}")
    refused = [k for k, v in told["plain"].items() if "Error: " in v.split("'")[0]]
    run.check(
        "corners of torch compute the same",
        not set(bad) - set(unsure),
        f"{len(told['plain'])} of them; differ: {bad}; differ anyway: {unsure}; "
        f"raise anyway: {refused}",
    )


# --- calls ---


def calls(run):
    told, where = run.job("calls", file=JOB)
    same(run, "calls of Python", told)
    modules, rows = collections.Counter(), 0
    files = list(where.rglob("python_trace_*.csv"))
    for path in files:
        with open(path, newline="") as f:
            for row in csv.DictReader(f):
                rows += 1
                text = " ".join(str(v) for v in row.values())
                if "nn.Module: " in text:
                    modules[text.split("nn.Module: ")[1].split()[0].rstrip(',"')] += 1
    run.check(
        "each call of a module is told with its class",
        modules == told["modules"],
        f"{rows} calls of {len(files)} threads, {dict(modules)}; "
        f"monitoring of the interpreter: {told['monitoring']}",
    )


# --- owners ---


def owners(run):
    told, where = run.job("owners", file=JOB)
    rows = rows_of(where)
    for label, size in told["sizes"].items():
        mine = [
            r["attr"].get("owner", "")
            for r in rows
            if r["Event"] == "MALLOC" and r["Event Type"] == "TORCH"
            if r["attr"]["size"] == str(size)
        ]
        good = [label in text.split("@") for text in mine]
        run.check(
            f"what is allocated meanwhile belongs to {label}",
            len(mine) == 5 and all(good[1:]),
            f"{mine}",
        )
    run.check(
        "autograd's threads are known from the first time on",
        all(n >= 1 for n in told["threads"]),
        told["threads"],
    )
    owned(run, "owners", rows, told["model"])


def owned(run, title, rows, model):
    for name, want in model.items():
        have = owned_bytes(rows, name)
        run.check(f"{title}: bytes of {name}", have == want, f"{have} and {want}")


# --- the compiler, processes, shards ---


def compiled(run):
    told, where = run.job("compiled", file=JOB)
    same(run, "a compiled model", told)
    run.note(f"{told['graphs']} graphs, {told['breaks']} breaks, {told['seconds']:.0f} s")
    first, where = run.job("compiled", "--first", file=JOB)
    same(run, "compiled while recording", first)
    far = max(abs(a - b) for a, b in zip(told["losses"][0], first["losses"][0]))
    run.check(
        "compiled while recording: as compiled before",
        far < 1e-4 and first["breaks"] == told["breaks"],
        f"losses differ by {far:g}, {first['graphs']} graphs, {first['breaks']} breaks, "
        f"results {'' if first['plain'] == told['plain'] else 'not '}the same to the bit",
    )


def processes(run):
    command = str(pathlib.Path(run.args.bin).with_name("msmemscope"))
    wrap = [command, "--collect-mode=deferred", "--output={where}", "--"]
    plain = json.loads(run.plain([sys.executable, MODEL, *DEVICE]))
    for title, options, wrap in (
        ("two processes", [], ()),
        ("two processes under the command", ["--launched"], wrap),
    ):
        told, where = run.job("spawned", *options, file=JOB, wrap=wrap)
        by_process = collections.defaultdict(list)
        for row in rows_of(where):
            by_process[int(row["Process Id"])].append(row)
        worst = 0
        for one in told:
            steps = balance(by_process[one["pid"]])
            for n, (requested, allocated, reserved) in enumerate(one["steps"], 1):
                mine = steps.get(n, {"TORCH": -1, "CUDA": -1})
                more = mine["CUDA"] - reserved  # under the command libraries count, too
                worst = max(worst, abs(mine["TORCH"] - (allocated if wrap else requested)))
                worst = max(worst, -more if wrap else abs(more))
        missed = [one["missed"] for one in told]
        run.check(
            f"{title}: each to the byte at every step",
            worst == 0 and not any(missed),
            f"difference {worst}, missed {missed}",
        )
        run.check(
            f"{title}: both compute the same",
            len({one["digest"] for one in told}) == 1,
            plain["digest"][:8],
        )


def sharded(run):
    told, where = run.job("sharded", file=JOB)
    same(run, "FSDP, one rank", told)
    owned(run, "FSDP, one rank", rows_of(where), told["model"])


# --- the wheel ---


def wheel(run):
    """Installed by pip into an environment of its own; torch is where it was."""
    if not run.args.wheel:
        run.note("no --wheel: not tried")
        return
    home = run.work / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, run.args.wheel], check=True, stdout=subprocess.DEVNULL)
    (packages,) = home.glob("lib/python*/site-packages")
    torch = [path for path in sys.path if path.endswith("-packages")]
    (packages / "torch.pth").write_text("\n".join(torch) + "\n")
    env = {k: v for k, v in run.env.items() if k != "PYTHONPATH"}
    plain = json.loads(run.plain([python, MODEL, *DEVICE], env=env))
    for title, words in (
        ("msmemscope -- python train.py", []),
        ("… --analysis=decompose", ["--analysis=decompose", "--call-stack=python:5"]),
        ("… --events=access", ["--events=alloc,free,access"]),
    ):
        where = run.place("wheel")
        command = [home / "bin/msmemscope", f"--output={where}", *words]
        said = run.plain([*command, "--", python, MODEL, *DEVICE], env=env)
        told = json.loads(said[said.index('{"digest"') :].splitlines()[0])
        rows = rows_of(where)
        kinds = collections.Counter(f"{r['Event']} {r['Event Type']}" for r in rows)
        good = told["digest"] == plain["digest"]
        if words:
            good = good and kinds["MALLOC TORCH"] > 100
        if words and "access" in words[0]:
            good = good and kinds["ACCESS WRITE"] > 100
        run.check(f"of the wheel: {title}", good, f"{dict(kinds)}, {told['loaded']}")
        if words and "decompose" in words[0]:
            freed = [r["attr"].get("owner", "") for r in rows if r["Event"] == "FREE"]
            named = collections.Counter(freed)
            weights = sum("weight" in name.split("@") for name in freed)
            run.check("of the wheel: weights are told", weights > 10, dict(named))
    run.reconcile("of the wheel, no library in front", ["--stacks"], python=python, env=env)


# --- what it costs ---


def middle(values):
    """(median, what the middle half of them lies between)."""
    low, mid, high = statistics.quantiles(values, n=4)
    return mid, low, high


def cost(run, large):
    size = "large" if large else "small"
    options = ["--large", "--steps=13", "--turns=4"] if large else ["--steps=40", "--turns=5"]
    told, _ = run.job("kinds", *options, file=COST)
    for name, mine in told.items():
        on, off = middle(mine["on"]), middle(mine["off"])
        noise = max(off[2] - off[0], off[0] - off[1]) / off[0] * 100
        run.facts[f"cost, {size}, {name}"] = {"on_ms": on, "off_ms": off, "n": len(mine["on"])}
        run.check(
            f"a {size} step, {name}",
            True,
            f"{off[0]:.3f} ms ({off[1]:.3f} to {off[2]:.3f}) without, "
            f"{on[0]:.3f} ms ({on[1]:.3f} to {on[2]:.3f}) with: "
            f"{(on[0] / off[0] - 1) * 100:+.2f} %, noise {noise:.2f} %; "
            f"means {statistics.fmean(mine['off']):.3f} and {statistics.fmean(mine['on']):.3f} ms; "
            + ", ".join(
                f"{what}() {statistics.median(mine[f'{what}_ms']):.1f} ms"
                for what in ("start", "stop")
                if mine[f"{what}_ms"]
            ),
        )


def each(runs, key):
    """Median and middle half of each process."""
    found = [middle(told[key]) for told in runs]
    return ", ".join(f"{mid:.3f} ({low:.3f} to {high:.3f})" for mid, low, high in found) + " ms"


def idle(run):
    """Nothing is recorded: in a process without, with the package stopped, under the command."""
    command = str(pathlib.Path(run.args.bin).with_name("msmemscope"))
    wrap = [command, "--collect-mode=deferred", "--output={where}", "--"]
    kinds = {
        "not there": ([], ()),
        "package stopped": (["--package"], ()),
        "under the command, not started": ([], wrap),
    }
    found = collections.defaultdict(list)
    for _ in range(2):
        for name, (options, around) in kinds.items():
            told, _ = run.job("idle", "--large", "--steps=40", *options, file=COST, wrap=around)
            found[name].append(told)
    for name, runs in found.items():
        key = "after" if "after" in runs[0] else "before"
        text = f"its processes {each(runs, key)}"
        if key == "after":
            text += f"; the same processes before {each(runs, 'before')}"
        run.check(f"a step while nothing is recorded, {name}", True, text)


STAGES = {
    "operators": operators,
    "corners": corners,
    "calls": calls,
    "owners": owners,
    "compiled": compiled,
    "processes": processes,
    "sharded": sharded,
    "wheel": wheel,
    "cost_small": lambda run: cost(run, False),
    "cost_large": lambda run: cost(run, True),
    "idle": idle,
}
