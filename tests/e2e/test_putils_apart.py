# SPDX-License-Identifier: MulanPSL-2.0
"""putils beside other users of the machine: names in /tmp can be guessed, files can be anybody's."""

import os
import struct
import subprocess
import sys
import zipfile

import pytest
import torches
from capabilities import needs

OTHER = 65534


def run(build, code, *words, python=sys.executable, cwd="/", timeout=60):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(build / "python"), "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        [python, "-B", "-c", code, *map(str, words)],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=timeout,
    )


def refuses(build, folder):
    code = "import sys; from putils import _files\ntry: _files.make_folder(sys.argv[1])\n"
    code += "except OSError as why: print('refused', why)"
    return "refused" in run(build, code, folder).stdout


@pytest.fixture
def everybodys(tmp_path):
    """A folder as /tmp is."""
    tmp_path.chmod(0o755)
    path = tmp_path / "tmp"
    path.mkdir()
    path.chmod(0o1777)
    return path


def test_folders_that_another_user_could_exchange(build, everybodys, tmp_path):
    needs("root")
    mine = tmp_path / "mine"
    mine.mkdir()
    assert not refuses(build, everybodys / "new") and (everybodys / "new").is_dir()
    foreign = everybodys / "foreign"
    foreign.mkdir()
    foreign.chmod(0o777)
    (foreign / "below").mkdir()
    link, ours = everybodys / "link", tmp_path / "ours"
    link.symlink_to(mine)
    ours.symlink_to(mine)
    for path in (foreign, foreign / "below", link):
        os.chown(path, OTHER, OTHER, follow_symlinks=False)
    assert refuses(build, foreign) and refuses(build, foreign / "below")
    assert refuses(build, link) and refuses(build, f"{link}/") and refuses(build, link / "new")
    assert not refuses(build, ours) and not refuses(build, f"{ours}/")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    assert not refuses(build, open_to_all)
    os.chown(open_to_all, OTHER, OTHER)
    assert refuses(build, open_to_all / "new")


def test_nobody_waits_for_a_fifo(build, tmp_path):
    for name in ("a.log", "a.pt", "putils_order.txt"):
        os.mkfifo(tmp_path / name)
    code = "import sys; from putils import _lines, _differences\n"
    code += "try: _lines.read_log(sys.argv[1] + '/a.log')\nexcept OSError as why: print(why)\n"
    code += "print(_differences._dump_names(sys.argv[1]))\n"
    code += "try: _differences._files.open_regular(sys.argv[1] + '/a.pt')\n"
    code += "except OSError as why: print(why)"
    said = run(build, code, tmp_path).stdout.splitlines()
    assert ["is not a file" in line for line in said] == [True, False, True], said


def test_a_line_of_a_log_costs_no_more_than_its_length(build):
    """An expression over it took cubic time."""
    code = "from putils import _lines\n"
    code += "for n in (2000, 8000, 20000): assert _lines.read_line(\"'|\" * (n // 2) + ' ' * n) is None\n"
    code += "print(_lines.read_line(\"x 'a'|b'| l1_norm 2 | 3f | torch.int8 | torch.Size([1])\").name)\n"
    code += "print(_lines.read_line(\"'a'| 3f | torch.int8 | torch.Size([1])\").md5)"
    assert run(build, code, timeout=20).stdout.split() == ["a'|b", "3f"]


def test_a_dump_is_read_without_running_it(build, tmp_path):
    """What the restricted loader raises does not lead to the other one."""
    command = f"touch {tmp_path}/ran".encode()
    pickle = b"\x80\x02ccollections\nOrderedDict\n)RN}\x86b0cposix\nsystem\nX"
    pickle += struct.pack("<I", len(command)) + command + b"\x85R."
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with zipfile.ZipFile(tmp_path / name / "x.forward_tensor.pt", "w") as f:
            f.writestr("archive/data.pkl", pickle)
            f.writestr("archive/version", "3\n")
    code = "import sys; from putils import accuracy\n"
    code += "print(accuracy.first_difference(*sys.argv[1:]))"
    r = run(build, code, tmp_path / "one", tmp_path / "two", python=torches.quickest_torch().path)
    assert "x.forward_tensor.pt" in r.stdout and not (tmp_path / "ran").exists(), r.stdout


def test_a_checkpoint_beside_what_another_user_has_prepared(build, everybodys):
    needs("root")
    os.mkfifo(everybodys / ".write.lock")
    code = "import sys, torch; from putils.saver import AsyncTorchSaver\n"
    code += "with AsyncTorchSaver(tmp_dir=sys.argv[1] + '/t') as s:\n"
    code += "    path = s.save({'w': torch.ones(3)}, sys.argv[1] + '/step.pt').result()\n"
    code += "print(torch.load(path)['w'].sum().item())"
    r = run(build, code, everybodys, python=torches.quickest_torch().path)
    assert r.stdout.split()[-1] == "3.0", r.stdout
    left = sorted(p.name for p in everybodys.iterdir())
    assert left == [".write.lock", "step.pt", "t"], left
    (everybodys / "step.pt").unlink()
    (everybodys / ".staging").mkdir()
    os.chown(everybodys / ".staging", OTHER, OTHER)
    r = run(build, code, everybodys, python=torches.quickest_torch().path)
    assert ".staging' lies in a folder for everybody and is not ours" in r.stdout, r.stdout
    left = sorted(p.name for p in everybodys.iterdir())
    assert left == [".staging", ".write.lock", "t"], left


# For each folder a process of its own, forked from one that has imported torch.
WRITERS = """
import gc, os, sys
import torch
from putils.cache import RolloutCache
from putils.saver import AsyncTorchSaver
from putils.compare_perf.align import AlignmentMappingCache
from putils.compare_perf.export import write_json
from putils.npu_affinity_benchmark.run import _write
gc.freeze()  # a collection in a child would copy every page
for folder in sys.argv[2:]:
    print("FOLDER", flush=True)
    child = os.fork()
    if child == 0:
        break
    os.waitpid(child, 0)
else:
    sys.exit()
def saver():
    with AsyncTorchSaver(tmp_dir=sys.argv[1]) as s:
        s.save({"step": 1}, folder + "/s.pt").result()
for write in (
    saver,
    lambda: RolloutCache(folder).save("k", 1),
    lambda: AlignmentMappingCache(folder + "/a.json").save_confirmed_mappings(["a"], ["b"], {"a": "b"}),
    lambda: write_json(folder + "/e.json", {}),
    lambda: _write(folder, "r.json", b"{}"),
):
    try:
        write()
    except OSError as why:
        print("refused:", why)
"""
WRITTEN = ["a.json", "e.json", "k.pt", "r.json", "s.pt"]


@pytest.mark.parametrize("mode", [0o1777, 0o777])
def test_nothing_is_written_through_a_link_of_another_user(build, everybodys, tmp_path, mode):
    needs("root")
    everybodys.chmod(mode)
    victim, link, python = tmp_path / "victim", everybodys / "link", torches.quickest_torch().path
    (victim / ".staging").mkdir(parents=True)
    link.symlink_to(victim)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    places = (link, link / "new", f"{link}/../victim")
    text = run(build, WRITERS, tmp_path / "t", *places, python=python).stdout
    assert text.count("FOLDER") == len(places), text
    for said in text.split("FOLDER")[1:]:
        assert said.count("refused:") == 4 and "is not saved: " in said, said
    assert [p.name for p in victim.iterdir()] == [".staging"], text
    link.unlink()
    link.symlink_to(victim)  # our own
    said = run(build, WRITERS, tmp_path / "t", link, python=python).stdout
    assert "refused" not in said and "[putils]" not in said, said
    assert sorted(p.name for p in victim.glob("[a-z]*")) == WRITTEN


CACHE = """
import os, sys, torch
from putils.cache import RolloutCache
folder, other = sys.argv[1], int(sys.argv[2])
c = RolloutCache(folder)
file, second = c.path("k"), c.path("second")
def load(key):
    print(key, c.load(key), flush=True)
load("k")
c.save("k", [7]), load("k")
torch.save([8], c.path("old")), load("old")
os.chmod(file, 0o660), load("k")
os.chmod(file, 0o602), load("k")
os.chmod(file, 0o640), os.link(file, second), load("k")
os.unlink(file), load("second")
os.rename(second, file), os.chown(file, other, other), load("k")
os.chown(file, 0, 0), load("k")
os.chown(folder, other, other), load("k")
"""


def test_the_cache_reads_no_file_that_another_user_could_have_written(build, tmp_path):
    needs("root")
    r = run(build, CACHE, tmp_path / "c", OTHER, python=torches.quickest_torch().path)
    refused = f"[putils] '{tmp_path}/c/%s.pt' is not used: "
    assert r.stdout.replace(refused % "k", "! ").splitlines() == [
        "k None",
        "k [7]",
        "old [8]",
        "! others may write to it (mode 660)",
        "k None",
        "! others may write to it (mode 602)",
        "k None",
        "! it has other names, so that it may be somebody else's",
        "k None",
        refused % "second" + "it was saved under another key",
        "second None",
        "! it belongs to another user",
        "k None",
        "k [7]",
        "! its folder belongs to another user",
        "k None",
    ]


ESCAPES = "\x1b]0;x\x07\x08\x7f\x9b2J"
ENTRY = "'{}'| l1_norm {} | {} | torch.int8\x1b[1m | torch.Size([1]) | mean 1 | isNan False\n"


def test_names_of_foreign_files_do_nothing_to_a_terminal(build, tmp_path):
    for name, number in (("a", "1"), ("b", "2")):
        text = ENTRY.format("n\t" + ESCAPES, number, number * 6)
        (tmp_path / f"{name}.log").write_text(text, encoding="utf-8")
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    code = "import sys; from putils import accuracy, compare_hooks, _messages\n"
    code += "accuracy.main(sys.argv[1:3]); print(accuracy.first_difference(*sys.argv[1:3]).words)\n"
    code += "compare_hooks.main(['--base-log', sys.argv[1], '--target-log', sys.argv[2], '--output', sys.argv[3]])\n"
    code += "accuracy.main(['/no\\x1b[2J', '/no']); _messages.warn('a\\nb\\x1b[2J\\x85c\\td')\n"
    code += "print(_messages.words(ValueError('x\\x9b2J')))"
    said = run(build, code, a, b, tmp_path / "o.xlsx").stdout
    assert said.count("n\t?]0;x????2J") == 3, ascii(said)
    assert "[putils] a?b?[2J?c\td\n" in said and "x?2J" in said, ascii(said)
    assert not [c for c in said if ord(c) < 32 and c not in "\t\n" or 127 <= ord(c) < 160], ascii(said)


def test_names_of_weights_do_nothing_to_a_terminal(build, tmp_path):
    header = b'{"w\\u001b[2J\\nx": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}'
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0")
    code = "import sys; from putils import weight; weight.main(sys.argv[1:])"
    said = run(build, code, tmp_path, "-o", tmp_path / "list").stdout
    assert "Tensor: w?[2J?x | " in said and "\x1b" not in said, ascii(said)
    assert (tmp_path / "list").read_text().startswith("w?[2J?x | ")


def test_a_line_without_an_end_is_not_held_in_memory(build, tmp_path):
    line = ENTRY.format("{}", 1, "3f2a1c")
    with open(tmp_path / "a.log", "wb") as f:
        f.write(line.format("a").encode())
        f.truncate(1 << 30)
        f.seek(0, os.SEEK_END)
        f.write(b"\n" + line.format("ü" * 8000).encode() + b"[1]\n")
    code = "import resource, sys; from putils import _lines\n"
    code += "resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))\n"
    code += "print([(len(e.name), e.line, e.first) for e in _lines.read_log(sys.argv[1])])"
    assert run(build, code, tmp_path / "a.log").stdout == "[(1, 1, ''), (8000, 3, '[1]')]\n"
