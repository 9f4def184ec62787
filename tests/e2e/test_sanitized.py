# SPDX-License-Identifier: MulanPSL-2.0
"""Programs built with sanitizers run as they do without us: same findings, same stacks, same end."""

import os
import re
import shutil
import subprocess

import pytest

from capabilities import lacks

# compiler, sanitizer, more words; runtimes are shared libraries or part of the program
BUILDS = {
    "gcc-asan": ("gcc", "address"),
    "gcc-asan-static": ("gcc", "address", "-static-libasan"),
    "gcc-tsan": ("gcc", "thread"),
    "gcc-tsan-static": ("gcc", "thread", "-static-libtsan"),
    "gcc-lsan": ("gcc", "leak"),
    "clang-asan": ("clang", "address"),
    "clang-asan-shared": ("clang", "address", "-shared-libasan"),
    "clang-tsan": ("clang", "thread"),
}


def runtime_path(compiler):
    """clang's shared runtimes are found in no usual place."""
    r = subprocess.run([compiler, "-print-file-name=."], capture_output=True, text=True)
    top = os.path.dirname(r.stdout.strip())
    words = []
    for folder, _, files in os.walk(top):
        if any(re.match(r"libclang_rt\.asan.*\.so", f) for f in files):
            words.append(f"-Wl,-rpath,{folder}")
    return words


@pytest.fixture(scope="module")
def sanitized(build, tmp_path_factory):
    """Builds tests/targets/sanitized.c once for each."""
    made = {}
    source = os.path.join(os.path.dirname(__file__), "..", "targets", "sanitized.c")

    def make(name):
        if name not in made:
            compiler, kind, *more = BUILDS[name]
            program = tmp_path_factory.mktemp("sanitized") / name
            if "-shared-libasan" in more:
                more += runtime_path(compiler)
            command = [compiler, "-g", "-O1", f"-fsanitize={kind}", source, "-o", program, *more]
            good = shutil.which(compiler) and not subprocess.run(
                [*map(str, command), "-lpthread"], capture_output=True
            ).returncode
            made[name] = program if good else None
        if not made[name]:
            lacks("sanitizers", f"{' '.join(BUILDS[name])} does not build")
        return str(made[name])

    return make


def comparable(r):
    """Addresses, pids and times differ from run to run."""
    err = re.sub(rb"0x[0-9a-f]+|(==|pid=)\d+|tid=\d+", b"_", r.stderr)
    err = re.sub(rb"Shadow bytes around.*Shadow byte legend", b"", err, flags=re.DOTALL)
    return r.returncode, r.stdout, err


def check_like_plain(h, program, *words):
    """Recorded with host memory, and under the monitor."""
    plain = comparable(h.plain(program, *words))
    opts = ["--device=npu,cpu", "--call-stack=c:10", "--report=off"]
    assert comparable(h.run(program, *words, opts=opts)) == plain
    monitor = [str(h.build / "bin/sonde"), "monitor", "--quiet", "--", program, *words]
    assert comparable(h.plain(*monitor)) == plain
    return plain


@pytest.mark.parametrize("name", BUILDS)
def test_runs_as_without_us(hurt, sanitized, name):
    program = sanitized(name)
    status, out, err = check_like_plain(hurt, program, "good")
    assert (status, out, err) == (5, b"has worked\n", b"")
    notes = " ".join(hurt.show()["notes"])
    assert "host memory of 1 process was not recorded" in notes and "sanitizer" in notes


@pytest.mark.parametrize(
    "name, how, word",
    [
        ("gcc-asan", "over", b"heap-buffer-overflow"),
        ("gcc-asan", "leak", b"33 byte(s) leaked"),
        ("gcc-asan-static", "over", b"heap-buffer-overflow"),
        ("gcc-tsan", "race", b"data race"),
        ("gcc-lsan", "leak", b"33 byte(s) leaked"),
        ("clang-asan", "leak", b"33 byte(s) leaked"),
        ("clang-tsan", "race", b"data race"),
    ],
)
def test_finds_what_it_finds_without_us(hurt, sanitized, name, how, word):
    plain = hurt.plain(sanitized(name), how)
    if word not in plain.stderr:
        lacks("sanitizers", f"{name} does not find '{how}' here")
    if how != "race":  # which thread is first is chance
        check_like_plain(hurt, sanitized(name), how)
        return
    r = hurt.run(sanitized(name), how, opts=["--device=npu,cpu"])
    assert r.returncode == plain.returncode and word in r.stderr


def test_a_child_of_a_program_without(hurt, sanitized):
    """No launcher sees it coming."""
    program = sanitized("gcc-asan")
    check_like_plain(hurt, hurt.target("sanitized"), "child", f"{program} good; exit 9")


def test_options_that_are_set_stay(hurt, sanitized):
    env = {"ASAN_OPTIONS": "exitcode=77:halt_on_error=1"}
    program = sanitized("gcc-asan")
    assert hurt.run(program, "over", env=env).returncode == 77
    asks = {"ASAN_OPTIONS": "verify_asan_link_order=1"}
    assert b"does not come first" in hurt.run(program, "good", env=asks).stderr


def test_the_environment_recipe_lets_asan_programs_start(build, sanitized):
    """source msmemscope --load-api-env; and --unload-api-env leaves what was there."""
    script = (
        f'M={build}/bin/msmemscope; source $M --load-api-env >/dev/null; {sanitized("gcc-asan")} '
        'good || echo status $?; source $M --unload-api-env >/dev/null; echo "${ASAN_OPTIONS-none}"'
    )
    for before, after in (({}, "none"), ({"ASAN_OPTIONS": "a=1"}, "a=1")):
        env = {k: v for k, v in os.environ.items() if k != "ASAN_OPTIONS"} | before
        r = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, env=env)
        assert "does not come first" not in r.stderr, r.stderr
        assert r.stdout.splitlines()[-1] == after and "status 5" in r.stdout, r
