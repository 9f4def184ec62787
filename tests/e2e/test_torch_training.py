# SPDX-License-Identifier: MulanPSL-2.0
"""A real training loop: a leak in the user's own code is found with its line, and what is computed
does not differ by a bit from a run that nobody looks at."""

import functools
import json
import pathlib
import subprocess

import pytest
from python_jobs import Left
from torch_forks import forks  # noqa: F401
from torches import every_torch, torches

TRAIN = pathlib.Path(__file__).resolve().parents[1] / "targets/python/train.py"
STEPS = 8
TORCHES = every_torch()
NEWEST = TORCHES[-1:] if not torches() else [pytest.param(torches()[-1], id=torches()[-1].label)]
EVERYTHING = [
    "call_stack=python:10,c:5",
    "analysis=leaks,decompose,inefficient",
    "events=alloc,free,launch,access,traceback",
    "level=op,kernel",
    "device=cpu,npu",
]
STACKS = ["call_stack=python:10", "analysis=leaks", "device=cpu"]


def line_of(text):
    return 1 + TRAIN.read_text().splitlines().index(
        next(l for l in TRAIN.read_text().splitlines() if text in l)
    )


def train(jobs, torch, leak, *words, cli=None, env=None):
    """A process of its own."""
    place = jobs.place()
    command = [torch.path, TRAIN, leak, STEPS, *words]
    if cli is not None:
        at = place / "memscopeDumpResults"
        command = [jobs.build / "bin/msmemscope", f"--output-path={at}", *cli, "--", *command]
    r = subprocess.run(
        [str(w) for w in command],
        cwd=place,
        env=jobs.env(**(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=100,
    )
    return Left(place / "memscopeDumpResults", r)


def train_forked(jobs, forker, leak, *words):
    """Of one that had imported torch before (torch_forks.py)."""
    place = jobs.place()
    r = forker.run([TRAIN, leak, STEPS, *words], place, jobs.env())
    return Left(place / "memscopeDumpResults", r)


@functools.lru_cache(maxsize=None)
def unrecorded(torch):
    """What it prints by itself; the leaks are the same computation."""
    r = subprocess.run(
        [torch.path, str(TRAIN), "none", str(STEPS)], stdout=subprocess.PIPE, check=True
    )
    return r.stdout.decode()


def leaks_of(jobs, left):
    """The answer of `sonde mem leaks`, as JSON and as text."""
    left.wait()
    both = jobs.tmp / "answer.json"
    words = ["leaks", "--fail-on=leak", f"--json-file={both}", str(left.out)]
    t = subprocess.run([str(jobs.build / "bin/sonde"), "mem", *words], stdout=subprocess.PIPE)
    answer = json.loads(both.read_text())
    text = t.stdout.decode()
    unknown = "are not covered" in " ".join(text.split())
    assert t.returncode == (3 if answer["findings"] else 1 if unknown else 0), t
    return answer, text


def check_list(jobs, left):
    """The line that made what the list keeps, in the first sentence, and who called that."""
    answer, text = leaks_of(jobs, left)
    line = line_of("# the list keeps this")
    place = answer["leaks"][0]
    assert place["kind"] == "growth" and 16384 <= place["bytes_per_step"] < 17000, place
    assert place["where"] == f"Net.forward (train.py:{line})", place
    frames = place["python_stack"]
    assert any(f"/train.py({line}): Net.forward" in f for f in frames[:4]), frames
    assert any("train_step" in f for f in frames), frames
    assert f"train.py:{line}" in text.split("\n\n")[0], text
    return answer


# --- the leak ---


@pytest.mark.parametrize("torch", TORCHES)
def test_leak_with_no_preload(jobs, torch):
    left = train(jobs, torch, "list", *STACKS)
    assert (left.returncode, left.stdout) == (0, unrecorded(torch)), left
    answer = check_list(jobs, left)
    assert answer["findings"] == 1, "nothing else is taken for a leak"
    # Also on the console of the job itself, at its end.
    assert f"train.py:{line_of('# the list keeps this')}" in left.stderr, left


# What a plain `python train.py` records on a machine without a device, as the README has it.
PLAIN = [("package", 0, 0), ("device=cpu", 1, 0), ("events=traceback", 0, 1)]


@pytest.mark.parametrize("torch", TORCHES)
@pytest.mark.parametrize("word, tensors, calls", PLAIN)
def test_what_a_plain_python_records(jobs, forks, torch, word, tensors, calls):  # noqa: F811
    left = train_forked(jobs, forks.of(torch), "none", word).wait()
    sonde = [str(jobs.build / "bin/sonde"), "mem", "show", "--json", str(left.out)]
    counts = json.loads(subprocess.run(sonde, stdout=subprocess.PIPE).stdout)["counts"]
    assert (counts["mallocs"] > 0) == tensors, counts
    assert any(left.out.rglob("python_trace_*")) == calls
    assert ("no memory is recorded" in left.stderr) == (word == "package"), left


@pytest.mark.parametrize("torch", NEWEST)
def test_leak_of_a_graph(jobs, forks, torch):  # noqa: F811
    """The sum of a measure keeps every activation that the gradient would need: no list in sight."""
    left = train_forked(jobs, forks.of(torch), "graph", *STACKS)
    assert (left.returncode, left.stdout) == (0, unrecorded(torch)), left
    answer, text = leaks_of(jobs, left)
    assert answer["findings"] >= 1, text
    line = line_of("measured = net(batch)")
    frames = answer["leaks"][0]["python_stack"]
    assert any(f"/train.py({line}): train_step" in f for f in frames), answer["leaks"][0]
    # What else it keeps, the batch for one, is also named by its place.
    assert all("train.py" in leak["where"] for leak in answer["leaks"]), text


@pytest.mark.parametrize("torch", NEWEST)
def test_no_leak_no_finding(jobs, forks, torch):  # noqa: F811
    left = train_forked(jobs, forks.of(torch), "buffer", *STACKS)
    assert (left.returncode, left.stdout) == (0, unrecorded(torch)), left
    answer, text = leaks_of(jobs, left)
    assert answer["findings"] == 0, text


@pytest.mark.parametrize("torch", NEWEST)
def test_leak_below_the_command(jobs, torch):
    """Every block of the process is followed, not only tensors."""
    cli = ["--device=cpu", "--call-stack=python:10", "--collect-mode=deferred", "--format=none"]
    left = train(jobs, torch, "list", "package", cli=cli)
    assert (left.returncode, left.stdout) == (0, unrecorded(torch)), left
    check_list(jobs, left)


@pytest.mark.parametrize("torch", NEWEST)
def test_leak_with_the_recipe(jobs, torch):
    left = train(jobs, torch, "list", *STACKS, env=jobs.recipe())
    assert (left.returncode, left.stdout) == (0, unrecorded(torch)), left
    check_list(jobs, left)


@pytest.mark.parametrize("torch", TORCHES[:1])
@pytest.mark.deadline(300)
def test_leak_from_the_first_instruction_on(jobs, torch):
    """The import of torch alone has more different stacks than most programs ever have. What comes
    after it still has its own."""
    cli = ["--device=cpu", "--call-stack=python:10", "--format=none"]
    left = train(jobs, torch, "list", "step", cli=cli)
    assert (left.returncode, left.stdout) == (0, unrecorded(torch)), left
    check_list(jobs, left)
    lost = subprocess.run(
        [str(jobs.build / "bin/sonde"), "mem", "show", "--json", str(left.out)],
        stdout=subprocess.PIPE,
        check=True,
    )
    assert json.loads(lost.stdout)["lost"] == {"events": 0, "stacks": 0, "damaged_bytes": 0, "exact": True}


# --- to the last bit ---


@pytest.mark.parametrize("torch", TORCHES)
def test_everything_on_changes_nothing(jobs, forks, torch):  # noqa: F811
    left = train_forked(jobs, forks.of(torch), "none", *EVERYTHING)
    assert (left.returncode, left.stdout) == (0, unrecorded(torch)), left
    assert "Traceback" not in left.stderr and "not collected" not in left.stderr, left


@pytest.mark.parametrize("torch", NEWEST)
def test_everything_on_below_the_command(jobs, torch):
    """Nothing in the program: the command brings the package by itself."""
    cli = [
        "--call-stack=python:10,c:5",
        "--analysis=leaks,decompose,inefficient",
        "--events=alloc,free,launch,access,traceback",
        "--level=op,kernel",
    ]
    left = train(jobs, torch, "none", cli=cli)
    assert (left.returncode, left.stdout) == (0, unrecorded(torch)), left
    assert "Traceback" not in left.stderr and "not collected" not in left.stderr, left


# --- torch's own ways of having processes ---

WORKERS = """
import torch
import torch.multiprocessing as mp

def child(n, tensor, done):
    torch.set_num_threads(1)
    tensor[n] = n + 1
    done.put((os.getpid(), float(torch.randn(10).sum())))

class Data(torch.utils.data.Dataset):
    def __len__(self): return 16
    def __getitem__(self, i): return torch.full((1000,), float(i))

def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    method = sys.argv[1]
    context = mp.get_context(method)
    shared = torch.zeros(4).share_memory_()
    done = context.SimpleQueue()
    number = 4 if method == "fork" else 1  # each imports torch once more
    workers = [context.Process(target=child, args=(n, shared, done)) for n in range(number)]
    [w.start() for w in workers]
    told = [done.get() for _ in workers]
    [w.join() for w in workers]
    assert all(w.exitcode == 0 for w in workers), [w.exitcode for w in workers]
    print(shared.tolist(), len({pid for pid, _ in told}))
    if method != "fork":
        return
    loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, shuffle=True,
                                         multiprocessing_context=method)
    for epoch in range(2):
        print([float(b.sum()) for b in loader])

if __name__ == "__main__":
    if len(sys.argv) > 2:
        msmemscope.config(device="cpu", call_stack="python:5", analysis="leaks,decompose",
                          events="alloc,free,launch,access,traceback")
        msmemscope.start()
        main()
        msmemscope.stop()
    else:
        main()
"""


@pytest.mark.parametrize("torch", NEWEST)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_torch_multiprocessing(jobs, torch, method):
    plain = jobs.run(torch, WORKERS, method, timeout=110)
    assert plain.returncode == 0, plain
    left = jobs.run(torch, WORKERS, method, "record", timeout=110)
    assert (left.returncode, left.stdout) == (0, plain.stdout), left
    assert "Traceback" not in left.stderr and "not collected" not in left.stderr, left
    # Forked ones are recorded as their parent is: four children, and two workers for each epoch.
    assert len(left.processes) == (9 if method == "fork" else 1)
    assert left.of("MALLOC", "HOST")
