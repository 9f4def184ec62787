# SPDX-License-Identifier: MulanPSL-2.0
"""The command line of `sonde stack`: every name that scripts know, and what is refused."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from stack_jobs import PARKED, Jobs, check, functions, read

REPO = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def jobs(build, tmp_path):
    made = Jobs(build, tmp_path)
    yield made
    made.close()


# Option, its default, as `python_stack_sniffer` has had them.
KNOWN = {
    "pid": None,
    "interval": "0.1",
    "output": "stack_trace.json",
    "duration": None,
    "autosave-interval": "0",
    "autosave-output": None,
    "autosave-snapshot-interval": "7200",
    "autosave-snapshot-output": None,
    "all-threads": None,
    "npu-usage": None,
    "npu-aicore-usage": None,
    "npu-smi-refresh-interval": "1",
    "npu-smi-timeout": "2.0",
    "cpu-mem-usage": None,
    "cpu-mem-timeout": "1.0",
    "verbose": None,
    "debug-pid-discovery": None,
    "min-hbm-usage-mb": "5000",
    "gpu-usage": None,
    "gpu-smi-timeout": "2.0",
    "min-gpu-mem-usage-mb": "0",
}
WRAPPER = """output interval autosave-interval all-threads sniffer-arg python sniffer-script detach
status stop pid-file detach-log-file dry-run""".split()


def option_table(jobs, command):
    commands = json.loads(jobs.sonde("help", "--json").stdout)["commands"]
    (only,) = [c for c in commands if c["name"] == command]
    return {n.lstrip("-"): o for o in only["options"] for n in o["names"] if n.startswith("--")}


def test_every_option_that_scripts_know(jobs):
    table = option_table(jobs, "stack")
    for name, default in KNOWN.items():
        assert name in table
        if default:
            assert table[name]["default"].split(",")[0] == default
    letters = {"p": "pid", "i": "interval", "o": "output", "d": "duration", "v": "verbose"}
    for letter, name in letters.items():
        assert f"-{letter}" in table[name]["names"]
    assert table["npu-usage"] is table["npu-aicore-usage"]
    for name in WRAPPER:
        assert name in option_table(jobs, "stack run")


def test_everything_at_once_under_the_old_name(jobs, tmp_path):
    job = jobs.python(PARKED)
    r = jobs.sonde(
        *f"""-p {job.pid} -i 0.02 -d 1 -o t.json --autosave-interval 0.1 --autosave-output
        a.json --autosave-snapshot-interval 0.15 --autosave-snapshot-output s.json --all-thread
        --npu-aicore-usage --npu-smi-refresh-interval 1 --npu-smi-timeout 0.5 --cpu-mem-usage
        --cpu-mem-timeout 1.0 -v --debug-pid-discovery --min-hbm-usage-mb 5000 --gpu-usage
        --gpu-smi-timeout 0.5 --min-gpu-mem-usage-mb 0""".split(),
        name="python_stack_sniffer",
    )
    assert r.returncode == 0, r.stderr
    assert "wait_here" in functions(check(read(tmp_path / "t.json")), job.pid)
    check(read(tmp_path / "a.json"))
    copies = sorted(tmp_path.glob("s.*.json"))
    assert copies
    for copy in copies:
        assert re.fullmatch(r"s\.\d{8}_\d{6}_\d{3}\.json", copy.name)
        check(read(copy))
    log = (tmp_path / "t.json.log").read_text()
    stages = "loop_total loop_sleep autosave_write_json autosave_snapshot_write_json".split()
    for stage in stages + ["final_write_json"]:
        assert re.search(
            rf"{stage}: count=\d+ avg=[\d.]+ms min=[\d.]+ms max=[\d.]+ms total=[\d.]+s", log
        )
    assert re.search(r"Total samples: [1-9]", log)


def test_the_script_that_scripts_start(jobs, build, tmp_path):
    job = jobs.python(PARKED)
    tool = build / "python/putils/tools/python_stack_sniffer.py"
    words = ["-p", str(job.pid), "-i", "0.05", "-d", "0.2", "-o", "t.json"]
    r = subprocess.run([sys.executable, tool, *words], cwd=tmp_path, capture_output=True)
    assert r.returncode == 0, r.stderr
    assert "wait_here" in functions(check(read(tmp_path / "t.json")))
    # elsewhere: by $SONDE, by $PATH, or not at all
    lone = tmp_path / "lone.py"
    lone.write_bytes(tool.read_bytes())
    for env in ({"SONDE": str(build / "bin/sonde"), "PATH": ""}, {"PATH": str(build / "bin")}):
        r = subprocess.run([sys.executable, lone, "--help"], env=env, capture_output=True)
        assert r.returncode == 0 and b"--autosave-snapshot-interval" in r.stdout
    r = subprocess.run([sys.executable, lone], env={"PATH": "/nowhere"}, capture_output=True)
    assert r.returncode == 127 and b"$SONDE" in r.stderr


def test_linked_under_the_name_of_the_script(jobs, build, tmp_path):
    link = tmp_path / "python_stack_sniffer.py"
    link.symlink_to(build / "bin/sonde")
    r = subprocess.run([link, "--help"], capture_output=True, universal_newlines=True)
    assert r.returncode == 0 and "--npu-smi-refresh-interval" in r.stdout


@pytest.mark.parametrize(
    "words, said",
    [
        (["-p", ""], "empty pid list"),
        (["-p", ","], "empty pid list"),
        (["-p", "12,abc"], "'abc'"),
        (["-p", "-5"], "process ids"),
        (["-i", "0"], "'--interval'"),
        (["-i", "fast"], "'fast'"),
        (["-i", "-1"], "'-1'"),
        (["-d", "nan"], "'nan'"),
        (["-d", "1e300"], "'1e300'"),
        (["--rate", "0"], "samples per second"),
        (["--format", "png"], "chrome, collapsed, speedscope, pprof or svg"),
        (["--format", "pprof", "--rotate-size", "1M"], "--format chrome"),
        (["--min-hbm-usage-mb", "-1"], "'-1'"),
        (["--all"], "ambiguous"),
        (["--intervall", "1"], "did you mean '--interval'"),
        (["-p", "1", "extra"], "unexpected argument 'extra'"),
        (["--status", "--stop"], "only one of"),
        (["--sniffer-arg", "--nonsense"], "--nonsense"),
        (["run", "--nonsense", "--", "true"], "--nonsense"),
        (["run"], "which command"),
    ],
)
def test_what_is_refused(jobs, tmp_path, words, said):
    r = jobs.stack(*words)
    assert (r.returncode, r.stdout) == (2, "")
    assert said in r.stderr
    assert not list(tmp_path.iterdir())


def test_output_that_cannot_be_written(jobs, tmp_path):
    r = jobs.stack("-p", os.getpid(), "-o", "missing/t.json")
    assert r.returncode == 1 and "missing" in r.stderr
    r = jobs.stack("run", "-o", "missing/t.json", "--", "touch", "ran")
    assert r.returncode == 1 and not (tmp_path / "ran").exists()


def test_prefixes_and_units(jobs):
    r = jobs.stack("--dry-run", "--all-thread", "--inter=5ms", "--dur", "2m", "-p1,2", "-p", "3")
    assert r.returncode == 0
    assert "interval: 0.005 s" in r.stdout
    assert "threads: all" in r.stdout
    assert "duration: 120 s" in r.stdout
    assert "processes: 1,2,3" in r.stdout
    assert "interval: 0.001 s" in jobs.stack("--dry-run", "--rate", "1000").stdout


def test_the_guide_names_every_option(jobs):
    text = (REPO / "docs/stack.md").read_text()
    for name in set(option_table(jobs, "stack")) - {"help"}:
        assert f"--{name}" in text, name
