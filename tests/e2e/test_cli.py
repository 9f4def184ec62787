# SPDX-License-Identifier: MulanPSL-2.0
"""The command lines: what is accepted, what is refused, what is said, what the job sees."""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import time

import pytest
from harness import Session
from waiting import pause, wait_until

REPO = pathlib.Path(__file__).resolve().parents[2]
HOOKS = ["libleaks_ascend_hal_hook.so", "libascend_mstx_hook.so", "libascend_kernel_hook.so"]
ATB = ["libatb_abi_0_hook.so", "libatb_abi_1_hook.so"]
CUDA = "libsonde_cuda_hook.so"


@pytest.fixture
def cli(build, tmp_path):
    """Runs bin/<words> in a fresh directory with an environment of our own."""

    def run(*words, env=None, **kw):
        base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
        base.update(env or {})
        return subprocess.run(
            [str(build / "bin" / words[0]), *words[1:]],
            cwd=kw.pop("cwd", tmp_path),
            env=base,
            capture_output=True,
            text=True,
            timeout=60,
            **kw,
        )

    return run


def recordings(path):
    return sorted(pathlib.Path(path).glob("recording_*"))


def config(tmp_path, name="memscopeDumpResults"):
    (only,) = recordings(tmp_path / name)
    return json.loads((only / "config.json").read_text())


# --- help and version ---


def test_msmemscope_help(cli):
    r = cli("msmemscope", "--help")
    assert (r.returncode, r.stderr) == (0, "")
    titles = re.findall(r"^(\S.*:)$", r.stdout, re.M)
    assert titles == [
        "Description:",
        "Usage:",
        "General options:",
        "Collection options:",
        "Analysis options:",
        "Input / Output options:",
        "Examples:",
    ]
    for token in [
        "-h, --help",
        "-v, -V, --version",
        "--verbose",
        "--quiet",
        "--input-path <DIR>",
        "--output-path <DIR>",
        "--format <FORMAT>",
        "[default: warn]",
        "msmemscope -- python train.py",
        "--steps",
        "--device",
        "--level",
        "--events",
        "--call-stack",
        "--collect-mode",
        "--analysis",
        "--watch",
        "--log-level",
        "--compare",
        "--compat",
        "--buffer-mb",
        "--wait-ms",
    ]:
        assert token in r.stdout, token
    assert "--data-format" not in r.stdout
    assert max(map(len, r.stdout.splitlines())) <= 80
    assert cli("msmemscope", "-h").stdout == r.stdout
    assert cli("sonde", "msmemscope", "--help").stdout == r.stdout
    assert "--format" in cli("sonde", "mem", "record", "--help").stdout
    assert cli("sonde", "help", "msmemscope").stdout == r.stdout


@pytest.mark.parametrize("option", ["-v", "-V", "--version", "--vers"])
def test_msmemscope_version(cli, option):
    r = cli("msmemscope", option, "--nonsense")
    assert r.returncode == 0
    assert re.search(r"^msmemscope version \d+\.\d+\.\d+", r.stdout, re.M)


def test_argv0_selects_the_command_line(cli, build, tmp_path):
    link = tmp_path / "msmemscope"
    link.symlink_to(build / "bin" / "sonde")
    r = subprocess.run([str(link), "--version"], capture_output=True, text=True)
    assert "msmemscope version" in r.stdout


def test_sonde_itself(cli):
    for option in ["--version", "-v", "-V"]:
        assert re.fullmatch(r"sonde \d+\.\d+\.\d+\n", cli("sonde", option).stdout)
    for words in [("--help",), ("help",)]:
        r = cli("sonde", *words)
        assert r.returncode == 0
        assert "mem" in r.stdout and "bugreport" in r.stdout
        assert "\n  recorder" not in r.stdout
        topics = [line for line in r.stdout.splitlines() if line.endswith(":")]
        assert topics[2:6] == [
            "Look at a job (enough to begin with):",
            "Look closer: memory, devices, Python:",
            "Serve a node, direct many:",
            "Names that other tools have:",
        ]
        first = r.stdout.split(topics[2])[1].split(topics[3])[0]
        verbs = re.findall(r"^  (\w+) ", first, re.M)
        assert {"top", "snap", "timeline"} <= set(verbs) and len(verbs) <= 5
        # every command is named once
        named = re.findall(r"^  (\w+) {2,}", r.stdout, re.M)
        assert len(named) == len(set(named)) and "python_stack_sniffer" in r.stdout
    r = cli("sonde")
    assert (r.returncode, r.stdout) == (2, "") and "Usage:" in r.stderr
    r = cli("sonde", "mem")
    assert (r.returncode, r.stdout) == (2, "") and "recover" in r.stderr
    assert cli("sonde", "mem", "--help").returncode == 0
    for group, commands, after in (("mem", "recover", "Examples:"), ("ctl", "nputrace", "Hosts:")):
        said = cli("sonde", "help", group).stdout
        assert said.index(f"\n  {commands} ") < said.index(f"\n{after}") and "Examples:" in said


@pytest.mark.parametrize(
    "words, said",
    [
        (["mme"], "unknown command 'mme'; did you mean 'mem'?"),
        (["bugrepot"], "did you mean 'bugreport'?"),
        (["mem", "shwo"], "sonde mem: unknown command 'shwo'; did you mean 'show'?"),
        (["qqqqqq"], "unknown command 'qqqqqq'\n"),
        (["help", "nothing"], "unknown command 'nothing'"),
        (["help", "mem", "nothing"], "unknown command 'nothing'"),
        (["mem", "show"], "missing argument"),
        (["mem", "show", "a", "b"], "unexpected argument 'b'"),
        (["mem", "show", "--top=x", "a"], "invalid value 'x' for '--top'"),
        (["mem", "show", "--jsn", "a"], "did you mean '--json'?"),
        (["mem", "export", "--format=xml", "a"], "expected csv, db, torch"),
        (["mem", "export", "--compat=1", "a"], "invalid compat '1'"),
        (["mem", "export", "--output-path=", "a"], "not empty"),
        (["mem", "recover"], "missing argument"),
        (["recorder"], "missing argument"),
        (["bugreport", "x"], "unexpected argument 'x'"),
    ],
)
def test_mistakes_are_explained(cli, words, said):
    r = cli("sonde", *words)
    assert (r.returncode, r.stdout) == (2, "")
    assert said in r.stderr


@pytest.mark.parametrize("name", ["mem show", "mem leaks", "mem export", "mem recover", "report"])
def test_missing_recording(cli, name):
    r = cli("sonde", *name.split(), "nowhere")
    assert (r.returncode, r.stdout) == (1, "")
    missing = "cannot find 'nowhere': No such file or directory; to make a recording: sonde record -- PROGRAM"
    assert r.stderr == f"sonde {name}: {missing}\n"


@pytest.mark.parametrize("words", [["mem", "record", "--device=gpux", "--", "true"], ["mem", "record", "--", "nosuch"]])
def test_messages_are_in_the_name_of_the_command(cli, words):
    r = cli("sonde", *words)
    assert r.returncode and r.stderr.startswith("sonde mem record: ") and "msmemscope" not in r.stderr


def session_page(root_pid, recorder_pid):
    """The beginning of struct control_page (src/wire/control_page.h), state LIVE."""
    head = struct.pack(
        "<QIIIIIIqII", 0x314E4F4953534553, 1, 1, 0, 0, 0, 0, 0, root_pid, recorder_pid
    )
    return head.ljust(4096, b"\0")


def test_show_waits_for_a_recorder_that_is_finishing(cli, tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    said = "the recorder is still writing"
    (tmp_path / "session").write_bytes(session_page(ended.pid, os.getpid()))
    with open(tmp_path / "session", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as a recorder does while it lives
        start = time.monotonic()
        assert said in cli("sonde", "mem", "show", "--wait=1", ".").stderr
        assert time.monotonic() - start >= 1
        # Nothing to wait for: told not to, the job runs, the recorder is gone, another version.
        assert said in cli("sonde", "mem", "show", "--wait=0", ".").stderr
    for page in [session_page(os.getpid(), os.getpid()), session_page(ended.pid, ended.pid), b"x"]:
        (tmp_path / "session").write_bytes(page)
        start = time.monotonic()
        assert said not in cli("sonde", "mem", "show", "--wait=60", ".").stderr
        assert time.monotonic() - start < 20


def test_help_json_and_text_agree(cli):
    data = json.loads(cli("sonde", "help", "--json").stdout)
    names = [c["name"] for c in data["commands"]]
    analyses = ["leaks", "gaps", "inefficient", "owners", "peak", "oom", "watch", "compare"]
    files = ["record", "show", "live", "export", "recover"]
    assert names[0] == "msmemscope" and names[-2:] == ["bugreport", "help"]
    assert {n for n in names if n.startswith("mem ")} == {f"mem {n}" for n in analyses + files}
    for command in data["commands"]:
        text = cli("sonde", "help", *command["name"].split()).stdout
        assert text.startswith("Description:\n")
        for option in command["options"]:
            assert option["help"][0].isupper() or option["help"].startswith("immediate")
            assert f"--{option['name']}" in text
    record = {o["name"]: o for o in data["commands"][0]["options"]}
    assert record["format"]["names"] == ["--format", "--data-format"]
    assert record["log-level"]["default"] == "warn"
    assert record["format"]["choices"] == ["csv", "db", "none"]
    assert record["version"]["names"] == ["-v", "-V", "--version"]


@pytest.mark.parametrize(
    "page", ["msmemscope", "sonde", "sonde-mem", "sonde-activity", "sonde-stack", "sonde-snap"]
)
def test_manual_pages_are_fresh(cli, page):
    r = cli("sonde", "help", "--man", page)
    assert r.returncode == 0
    assert (
        REPO / "docs/man" / f"{page}.1"
    ).read_text() == r.stdout, f"run: sonde help --man {page} > docs/man/{page}.1"


def test_bugreport(cli):
    text = cli("sonde", "bugreport")
    assert text.returncode == 0
    data = json.loads(cli("sonde", "bugreport", "--json").stdout)
    assert set(data) == {"versions", "machine", "file systems", "limits", "environment"}
    assert data["machine"]["kernel"] == os.uname().release
    for section in data:
        assert f"{section}\n" in text.stdout
    assert {"type", "local", "free_mib"} <= set(data["file systems"]["."])


# --- option values ---

GOOD = [
    (["--steps=1"], {"SelectedStepList": {"stepCount": 1, "stepIdList": [1, 0, 0, 0, 0]}}),
    (
        ["--steps", "1,2，3,4，55"],
        {"SelectedStepList": {"stepCount": 5, "stepIdList": [1, 2, 3, 4, 55]}},
    ),
    ([], {"npuSlots": 0xFFFFFFFF, "collectAllNpu": True, "collectCpu": False}),
    (["--device=npu:2，npu:7"], {"npuSlots": 0x84, "collectAllNpu": False}),
    (["--device=npu:2,npu,cpu"], {"collectAllNpu": True, "collectCpu": True}),
    (["--device=cpu"], {"npuSlots": 0, "collectAllNpu": False, "collectCpu": True}),
    (["--level=op,kernel"], {"levelType": 3}),
    (["--level=kernel"], {"levelType": 2}),
    (["--level=1"], {"levelType": 2}),
    (["--events=alloc", "--analysis=none"], {"dumpEventType": 3, "eventType": 3}),
    (["--events=access", "--analysis="], {"dumpEventType": 11, "eventType": 11}),
    (["--events=launch"], {"dumpEventType": 4, "eventType": 7}),
    (["--events=none"], {"dumpEventType": 0, "eventType": 3}),
    (["--events=", "--analysis=inefficient"], {"dumpEventType": 0, "eventType": 15}),
    (["--events=launch", "--analysis=decompose"], {"dumpEventType": 4, "eventType": 15}),
    (["--call-stack=c:20,python:10"], {"enableCStack": True, "cStackDepth": 20}),
    (["--call-stack=python"], {"enablePyStack": True, "enableCStack": False, "pyStackDepth": 50}),
    (["--call-stack=c", "--call-stack="], {"enableCStack": False}),
    (["--collect-mode=deferred"], {"collectMode": 1}),
    (["--analysis=leaks,oom:7"], {"analysisType": 9, "oomTopK": 7}),
    (["--analysis=none"], {"analysisType": 0}),
    (["--format=db"], {"dataFormat": 1}),
    (["--data-format=db"], {"dataFormat": 1}),
    (["--log-level=error"], {"logLevel": 3}),
    (["--log-level=warn"], {"logLevel": 2}),
    (["--verbose"], {"logLevel": 0}),
    (["--quiet", "--debug"], {"logLevel": 0}),
    (["--quiet", "--log-level=warning"], {"logLevel": 2}),
    (["--compat=26.0"], {"compat": 1}),
    (["--buffer-mb=32", "--wait-ms=0"], {"bufferMb": 32, "waitMs": 0}),
    (
        ["--watch=op0:out1,op1,full-content"],
        {
            "watchConfig": {
                "end": "op1",
                "fullContent": True,
                "isWatched": True,
                "outputId": 1,
                "start": "op0",
            }
        },
    ),
]


@pytest.mark.parametrize("options, want", GOOD, ids=lambda v: " ".join(v) if v else "default")
def test_good_values(cli, tmp_path, options, want):
    r = cli("msmemscope", *options, "sh", "-c", "echo out; echo err >&2; exit 7")
    # What this version does not do yet is said; otherwise nothing is.
    said = [line for line in r.stderr.splitlines() if "Warn: not in this version" not in line]
    assert (r.returncode, r.stdout, said) == (7, "out\n", ["err"])
    got = config(tmp_path)
    assert {key: got[key] for key in want} == want
    assert got["isEffective"] is True
    assert got["outputDir"] == str(tmp_path / "memscopeDumpResults")


BAD = [
    (["--steps=0"], "invalid steps input '0'"),
    (["--steps=1,2,3,4,5,6"], "more than 5 steps"),
    (["--steps=07"], "invalid steps input '07'"),
    (["--steps="], "expected one to five step numbers"),
    (["--device="], "expected npu, gpu or cuda (every device), npu:0 to npu:31"),
    (["--device=npu:32"], "invalid device 'npu:32'"),
    (["--device=npuu"], "did you mean 'npu'?"),
    (["--level=2"], "invalid data trace level input '2'"),
    (["--level="], "expected op, kernel or both"),
    (["--events=alloc,fre"], "did you mean 'free'?"),
    (["--events=all"], "invalid event trace type input 'all'"),
    (["--call-stack=c:1001"], "invalid call-stack depth input 'c:1001'"),
    (["--call-stack=java"], "expected c[:DEPTH], python[:DEPTH] or both"),
    (["--collect-mode=later"], "expected immediate or deferred"),
    (["--analysis=leak"], "did you mean 'leaks'?"),
    (["--analysis=oom:0"], "invalid OOM top-K value '0', valid range is [1, 1000]"),
    (["--analysis=oomx"], "invalid analysis type input 'oomx'"),
    (["--format=xml"], "invalid value 'xml' for '--format': expected csv, db or none"),
    (["--data-format="], "expected csv, db or none"),
    (["--watch=op"], "invalid watch config 'op'"),
    (["--watch=a:b,c"], "the output is no number"),
    (["--output-path="], "invalid output path ''"),
    (["-o", "a\nb"], "invalid output path 'a?b': it has control characters"),
    (["-o", b"a\xff"], "bytes that are not UTF-8"),
    (["-o", "x" * 256], "longer than 255"),
    (["-o", "/a" * 33], "more than 32"),
    (["-o", "x/" * 2100], "longer than 4096"),
    (["--log-level=loud"], "expected debug, info, warn or error"),
    (["--compat=25"], "expected 26.0 or current"),
    (["--buffer-mb=0"], "expected a number from 1 to 65536"),
    (["--wait-ms=-1"], "expected a number from 0 to 60000"),
    (["--compare"], "--compare needs the two inputs"),
    (["--input-path=/etc/passwd,/etc/group"], "--input-path is for --compare only"),
    (["--compare", "--input-path=/etc/passwd"], "expected two dump files or two directories"),
    (["--compare", "--input-path=/etc/passwd,/nowhere"], "'/nowhere': No such file"),
    (["--compare", "--input-path=/etc/passwd,/etc"], "expected two dump files"),
    (["--compare=yes"], "takes no value"),
    (["--nonsense"], "unknown option '--nonsense'"),
    (["--evnts=alloc"], "did you mean '--events'?"),
    (["--co=x"], "is ambiguous"),
    (["-q"], "unknown option '-q'"),
    (["--steps"], "option '--steps' needs a value"),
    ([], "no program to run"),
    (["--"], "no program to run"),
]


@pytest.mark.parametrize("options, said", BAD, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_values(cli, tmp_path, options, said):
    program = [] if options in ([], ["--"], ["--steps"]) else ["--", "true"]
    r = cli("msmemscope", *options, *program)
    assert (r.returncode, r.stdout) == (2, "")
    assert r.stderr.startswith("[msmemscope] ")
    assert said in r.stderr
    assert list(tmp_path.iterdir()) == []


def test_compat_from_the_environment(cli, tmp_path):
    assert cli("msmemscope", "true", env={"SONDE_COMPAT": "26.0"}).returncode == 0
    assert config(tmp_path)["compat"] == 1
    r = cli("msmemscope", "true", env={"SONDE_COMPAT": "x"})
    assert r.returncode == 2 and "SONDE_COMPAT" in r.stderr


# --- notices ---

# As the documents that people follow spell them: as good as any other spelling.
SPELLED = ["--output=o", "--data-format=csv", "--level=0", "--level=1", "--log-level=warn"]


def on_terminal(build, words, cwd):
    """Runs with stderr on a terminal; gives back status and what was shown there."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [str(build / "bin" / words[0]), *words[1:]],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as p:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
        os.close(ours)
        return p.wait(60), shown.decode().replace("\r\n", "\n")


def test_spellings_of_the_documents_are_ordinary_ones(cli, build, tmp_path):
    status, shown = on_terminal(build, ["msmemscope", *SPELLED, "true"], tmp_path)
    assert status == 0 and "eprecat" not in shown and "old name" not in shown
    (only,) = recordings(tmp_path / "o")
    assert "eprecat" not in (only / "msmemscope.log").read_text()
    assert json.loads((only / "config.json").read_text())["logLevel"] == 2
    a, b = tmp_path / "a", tmp_path / "b"
    for place in (a, b):
        place.mkdir()
    r = cli("msmemscope", "--compare", f"--input={a},{b}")
    assert r.returncode != 0 and str(a) in r.stderr and "eprecat" not in r.stderr


def test_the_log_level_of_the_documents_is_the_default(cli, tmp_path):
    assert cli("msmemscope", "true").returncode == 0
    assert config(tmp_path)["logLevel"] == 2
    (only,) = recordings(tmp_path / "memscopeDumpResults")
    assert "[INFO]" not in (only / "msmemscope.log").read_text()


@pytest.mark.parametrize(
    "option, whose",
    [
        ("", "every NPU and GPU"),
        ("--device=gpu,cpu", "every NPU and GPU, and of host memory"),
        ("--device=npu:1,cpu", "some NPUs or GPUs, and of host memory"),
        ("--device=cpu", "host memory"),
    ],
)
def test_terminal_is_told_whose_memory_it_is(build, tmp_path, option, whose):
    words = ["msmemscope", *([option] if option else []), "--", "true"]
    assert f"alloc, free, launch of {whose}, as csv\n" in on_terminal(build, words, tmp_path)[1]


def test_terminal_is_told_what_happens(build, tmp_path):
    status, shown = on_terminal(build, ["msmemscope", "--", "true"], tmp_path)
    lines = [line for line in shown.splitlines() if " Info: " in line]
    assert status == 0 and len(lines) == 3
    assert "Info: 0 events recorded, none lost, in /" in lines[2]
    assert "no memory of an NPU or GPU" in lines[2] and "--device=npu,cpu" in lines[2]
    assert "alloc, free, launch" in lines[0]
    assert str(recordings(tmp_path / "memscopeDumpResults")[0]) in lines[1]
    assert ("running as user root" in shown) == (os.geteuid() == 0)


CLOSING = [
    (["--device=cpu", "sh", "-c", "exit 0"], " events recorded, none lost; read them with: sonde mem show /"),
    (["--collect-mode=deferred", "true"], "recording begins when it calls sonde_start()"),
    (["--events=launch", "true"], "Allocations and frees were not asked for (--events)."),
    (["--steps=3", "true"], "Only some steps were asked for (--steps)"),
    (["./static"], "The program is statically linked"),
]


@pytest.mark.parametrize("words, said", CLOSING)
def test_the_last_line_says_what_there_is_or_why_not(build, cli, tmp_path, words, said):
    if words == ["./static"]:
        subprocess.run(
            ["gcc", "-static", "-x", "c", "-", "-o", tmp_path / "static"],
            input=b"int main(void) { return 0; }",
            check=True,
        )
    status, shown = on_terminal(build, ["msmemscope", *words], tmp_path)
    assert status == 0 and said in shown.splitlines()[-1], shown
    if "read them" not in said:  # the same for who looks later
        assert said in " ".join(cli("sonde", "mem", "show", "memscopeDumpResults").stdout.split())
        r = cli("sonde", "mem", "leaks", "memscopeDumpResults")
        assert said in " ".join(r.stdout.split())


BUSY_END = """
import sys
print("x", end="", flush=True)
sys.stdin.read()
for _ in range(100000): bytearray(600)
"""


def test_a_long_finish_says_how_far_it_is(build, tmp_path):
    ours, theirs = pty.openpty()
    words = [build / "bin" / "msmemscope", "--device=cpu", sys.executable, "-c", BUSY_END]
    with subprocess.Popen(
        words, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs
    ) as p:
        os.close(theirs)
        assert p.stdout.read(1) == b"x"  # it runs
        (only,) = recordings(tmp_path / "memscopeDumpResults")
        s = Session(only)
        os.kill(s.recorder, signal.SIGSTOP)
        p.stdin.close()
        asked = lambda: struct.unpack_from("<I", s.page(), 64)[0]
        wait_until(asked, "the job to wait at its end")
        pause(1.05, "it says so after a second")
        os.kill(s.recorder, signal.SIGCONT)
        shown = b""
        with contextlib.suppress(OSError):  # nobody has the terminal open any more
            while part := os.read(ours, 4096):
                shown += part
        os.close(ours)
        assert p.stdout.read() == b""
        assert p.wait(30) == 0
    # One line that is written over, and is gone before the last one comes.
    *before, last = shown.split(b"\r\x1b[K")
    assert re.search(rb"the job has ended; still writing the files: \d+ % done", before[1]), shown
    assert not any(b"\n" in line for line in before[1:])
    assert b"events recorded, none lost" in last.splitlines()[-1]


def test_none_clears(cli, tmp_path):
    r = cli("msmemscope", "--events=alloc,none", "--analysis=none,leaks")
    assert "Warn: 'none' mixed with other event types, all events cleared." in r.stderr
    assert "Warn: 'none' mixed with other analysis types" in r.stderr


@pytest.mark.parametrize("path", ["päth-日本", "a*b $c;'\"&,:", "\U0001f600 x"])
def test_any_path_is_an_output_path(cli, tmp_path, path):
    r = cli("msmemscope", "--device=cpu", "-o", path, "ls")
    assert (r.returncode, r.stderr) == (0, "")
    (only,) = recordings(tmp_path / path)
    assert json.loads((only / "config.json").read_text())["outputDir"] == str(tmp_path / path)
    r = cli("sonde", "mem", "show", path)
    assert r.returncode == 0 and " memory events " in r.stdout
    assert list((tmp_path / path).glob("msmemscope_*/device_cpu/dump/*.csv"))


# --- launching ---


def test_environment_of_the_job(cli, build, tmp_path):
    lib = build / "lib"
    r = cli("msmemscope", "-o", "a b", "env")
    env = dict(line.split("=", 1) for line in r.stdout.splitlines())
    (only,) = recordings(tmp_path / "a b")
    assert env["SONDE_SESSION"] == str(only)
    assert env["MSMEMSCOPE_CONFIG_PATH"] == str(only / "config.json")
    assert env["LD_PRELOAD"] == ":".join(str(lib / name) for name in [*HOOKS, CUDA])
    assert "LD_LIBRARY_PATH" not in env
    assert (only.stat().st_mode & 0o777) == 0o750
    assert (only / "config.json").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "home, extra",
    [
        ("/opt/atb/cxx_abi_0", ["libatb_abi_0_hook.so"]),
        ("/opt/atb/cxx_abi_1/", ["libatb_abi_1_hook.so"]),
        ("/opt/atb/other", []),
        ("", []),
    ],
)
def test_atb_library(cli, build, home, extra):
    words = ["--device=npu,cpu", "--", "sh", "-c", "echo $LD_PRELOAD"]
    r = cli("msmemscope", *words, env={"ATB_HOME_PATH": home})
    names = [pathlib.Path(p).name for p in r.stdout.strip().split(":")]
    assert names == HOOKS + extra + [CUDA, "libsonde_host_hook.so"]


def test_previous_preload_is_kept(cli, build):
    mine = str(build / "lib" / ATB[0])
    r = cli("msmemscope", "--", "sh", "-c", "echo $LD_PRELOAD", env={"LD_PRELOAD": mine})
    assert r.stdout.strip().endswith(f"{CUDA}:{mine}")


def test_options_end_at_the_program(cli):
    r = cli("msmemscope", "--events=alloc", "echo", "--help", "-x", "--", "y")
    assert (r.returncode, r.stdout) == (0, "--help -x -- y\n")


def test_same_pid_and_stdin(build, tmp_path):
    with subprocess.Popen(
        [str(build / "bin" / "msmemscope"), "--", "sh", "-c", "echo $$; cat"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as p:
        out, _ = p.communicate("hello\n", timeout=60)
        assert out == f"{p.pid}\nhello\n"


def test_signal_of_the_job(cli):
    assert cli("msmemscope", "--", "sh", "-c", "kill -TERM $$").returncode == -15


def test_two_recordings_at_once_do_not_meet(cli, build, tmp_path):
    # The same pid within the same second: the second launcher runs in the process of the first.
    again = str(build / "bin" / "msmemscope")
    r = cli("msmemscope", "--", "sh", "-c", 'exec "$0" -- true', again)
    assert r.returncode == 0, r.stderr
    assert len(recordings(tmp_path / "memscopeDumpResults")) == 2


def test_program_that_cannot_run(cli, tmp_path):
    r = cli("msmemscope", "no-such-program")
    assert (r.returncode, r.stdout) == (127, "")
    assert r.stderr == "msmemscope: cannot run 'no-such-program': No such file or directory\n"
    (tmp_path / "data").write_text("x")
    r = cli("msmemscope", "./data")
    assert r.returncode == 126
    assert r.stderr == "msmemscope: cannot run './data': Permission denied\n"
    assert cli("msmemscope", "/").returncode == 126
    assert cli("msmemscope", "").returncode == 127
    assert not (tmp_path / "memscopeDumpResults").exists()
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    r = cli("msmemscope", "./script")
    assert r.returncode == 127
    assert r.stderr == "msmemscope: cannot run './script': No such file or directory\n"


def test_output_that_cannot_be_made(cli, tmp_path):
    (tmp_path / "file").write_text("")
    r = cli("msmemscope", "-o", "file/x", "--", "sh", "-c", "echo ran")
    assert (r.returncode, r.stdout) == (1, "")
    assert "[msmemscope] Error: cannot make directory" in r.stderr
    assert "was not run" in r.stderr and "--output-path" in r.stderr


def test_libraries_that_are_missing(cli, tmp_path):
    r = cli("msmemscope", "true", env={"LD_PRELOAD_PATH": str(tmp_path)})
    assert r.returncode == 1
    assert f"cannot find 'libascend_kernel_hook.so' in '{tmp_path}'" in r.stderr


# --- the script that is sourced ---


def sourced(build, script, env=None, shell="bash"):
    base = {"PATH": os.environ["PATH"], "M": str(build / "bin" / "msmemscope")}
    base.update(env or {})
    return subprocess.run([shell, "-c", script], env=base, capture_output=True, text=True)


SHOW = (
    'echo "P=${LD_PRELOAD-unset}" "L=${LD_LIBRARY_PATH-unset}" '
    '"M=${MSMEMSCOPE_LIB_PATH-unset}"; '
)


def test_load_and_unload(build):
    lib = build / "lib"
    loaded = ":".join(str(lib / n) for n in reversed(HOOKS[:3] + ATB + [CUDA]))
    r = sourced(
        build,
        "set -eu; "
        + "".join(f'source "$M" --{w}load-api-env >/dev/null; {SHOW}' for w in ["", "", "un", "un"])
        + "set | grep -i '^_msmemscope' || true",
    )
    assert (r.returncode, r.stderr) == (0, "")
    there = f"P={loaded} L={lib} M={lib}"
    gone = "P=unset L=unset M=unset"
    assert r.stdout.splitlines() == [there, there, gone, gone]


def test_load_leaves_others_alone(build):
    lib = build / "lib"
    other = str(lib.parent / "lib2" / "x.so")
    env = {"LD_LIBRARY_PATH": f"/a b:{lib}x", "MINE": other}
    r = sourced(
        build,
        'LD_PRELOAD=$MINE; source "$M" --load-api-env >/dev/null; '
        + SHOW
        + 'source "$M" --unload-api-env >/dev/null; '
        + SHOW,
        env,
    )
    first, second = r.stdout.splitlines()
    assert first.split(" L=")[0].endswith(f"{HOOKS[0]}:{other}")
    assert f"L={lib}:/a b:{lib}x M={lib}" in first
    assert second == f"P={other} L=/a b:{lib}x M=unset"


def test_messages_of_the_script(build):
    r = sourced(build, 'source "$M" --load-api-env; source "$M" --unload-api-env')
    assert r.stdout and all(s.startswith("[msmemscope] ") for s in r.stdout.splitlines())
    for word in ["--load-api-env", "--unload-api-env"]:
        r = sourced(build, f'"$M" {word}')
        assert r.returncode == 1
        assert r.stderr.startswith("[msmemscope] Error: ") and "must be sourced" in r.stderr


def test_sourcing_anything_else_keeps_the_shell(build):
    r = sourced(build, 'source "$M" --version; echo "still here $?"; source "$M" --bad; echo "$?"')
    assert "msmemscope version" in r.stdout
    assert r.stdout.endswith("still here 0\n2\n")


def test_script_through_links(build, tmp_path):
    (tmp_path / "one").symlink_to(build / "bin" / "msmemscope")
    (tmp_path / "two").symlink_to("one")
    two = f'"{tmp_path}/two"'
    r = sourced(build, f"{two} --version; source {two} --load-api-env; {SHOW}")
    assert "msmemscope version" in r.stdout
    assert f"M={build / 'lib'}" in r.stdout


def test_script_without_libraries(build, tmp_path):
    (tmp_path / "bin").mkdir()
    copy = tmp_path / "bin" / "msmemscope"
    copy.write_text((build / "bin" / "msmemscope").read_text())
    r = sourced(build, f'source "{copy}" --load-api-env; echo $?; {SHOW}')
    assert r.stdout.startswith("1\nP=unset")
    assert "[msmemscope] Error: cannot find the libraries" in r.stderr
