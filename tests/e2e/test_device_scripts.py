# SPDX-License-Identifier: MulanPSL-2.0
"""tests/device: what needs a GPU says so where there is none, and one program runs all of it."""

import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parents[1] / "device"
# Each with what it is called with; the others in the folder are parts of these.
SCRIPTS = {
    "activity.py": ["--build"],
    "attribute.py": ["--build"],
    "cuda_cost.py": ["--bin"],
    "cuda_first.py": ["--bin"],
    "cuda_memory.py": ["--bin"],
    "kineto.py": ["--bin"],
    "memory.py": ["--bin", "--python-path"],
    "putils.py": ["--bin"],
    "record_cost.py": ["--bin"],
    "run_all.py": ["--build"],
    "stack.py": ["--bin"],
}


def call(build, tmp_path, script, **env):
    words = [sys.executable, HERE / script, "--out", tmp_path / "out"]
    for option in SCRIPTS[script]:
        words += [option, build / "bin/sonde" if option == "--bin" else build]
    env = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **env}
    return subprocess.run(
        words, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_a_gpu(build, tmp_path, script):
    """One sentence, at once, and nothing is left behind."""
    done = call(build, tmp_path, script, LD_LIBRARY_PATH=str(build / "sim"), SIM_GPU_COUNT="0")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("cannot run here: ") and done.stderr.count("\n") == 1
    assert not done.stdout and not (tmp_path / "out").exists()


FAKES = {
    "good.py": "print('PASS  a thing: 1')\nprint('    0.1 s  another: ok (2)')",
    "bad.py": "import sys\nprint('PASS  a')\nprint('FAIL  b: 3 is not 4')\nsys.exit(1)",
    "crash.py": "print('PASS  a')\nraise RuntimeError('it broke')",
    "silent.py": "",
    "counted.py": "print('FAILED one')\nprint('7 passed, 1 failed')",
    "hangs.py": "import time\nprint('SKIP  x', flush=True)\ntime.sleep(60)",
}
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import run_all
where, sys.argv = sys.argv[2], sys.argv[2:]
run_all.PARTS = {name: (name, [(f"{where}/{name}.py", ("--out", "{out}"), 2)])
                 for name in ("good", "bad", "crash", "silent", "counted", "hangs")}
sys.exit(run_all.main())
"""


def test_all_of_them(build, tmp_path):
    """The table says what passed, failed, broke, said nothing and did not end."""
    for name, text in FAKES.items():
        (tmp_path / name).write_text(text)

    def run(*parts):
        words = [sys.executable, "-c", RUN, HERE, tmp_path, "--build", build, "--out", tmp_path / "out"]
        return subprocess.run(
            [*words, "--part", ",".join(parts)],
            env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(build / "sim"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=60,
        )

    done = run("good")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(*(name[:-3] for name in FAKES))
    assert done.returncode == 1, done.stderr
    table = done.stdout[done.stdout.index("\npart ") :].splitlines()
    words = [line.split() for line in table]
    rows = {w[0]: w[3:] for w in words if len(w) > 5 and w[0] + ".py" in FAKES}
    assert {name: words[:3] for name, words in rows.items()} == {
        "good": ["2", "0", "0"],
        "bad": ["1", "1", "0"],
        "crash": ["1", "0", "0"],
        "silent": ["0", "0", "0"],
        "counted": ["7", "1", "0"],
        "hangs": ["0", "0", "1"],
    }
    said = {name: " ".join(words[3:]) for name, words in rows.items()}
    assert said["good"] == said["counted"] == "" and said["bad"] == said["crash"] == "exit status 1"
    assert said["hangs"] == "did not end within 2 s" and "could be counted" in said["silent"]
    assert any("3 is not 4" in line for line in table) and "it broke" in done.stdout
