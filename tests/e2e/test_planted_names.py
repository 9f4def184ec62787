# SPDX-License-Identifier: MulanPSL-2.0
"""Things that are no files of ours, under the names that recorder, recover and readers open: nobody
waits for them, and the real ones are read as ever."""

import os
import pathlib
import shutil
import socket
import stat
import subprocess

import pytest

from harness import wait_gone
from recording import clean_env

NAMES = ["session", "events.sonde", "config.json", "msmemscope.log", "1-1-1.ring"]


def plant_sparse(path):
    with open(path, "wb") as f:
        f.truncate(1 << 40)


def plant_socket(path):
    here = os.open(path.parent, os.O_DIRECTORY)  # its path may be too long for an address
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def plant_device(path):
    if os.geteuid() == 0:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero: no end
    else:
        path.symlink_to("/dev/zero")


PLANT = {
    "fifo": os.mkfifo,
    "directory": os.mkdir,
    "socket": plant_socket,
    "device": plant_device,
    "sparse": plant_sparse,
    "loop": lambda path: path.symlink_to(path.name),
}


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def recorded(build, tmp_path_factory):
    """A complete recording of 200 events."""
    from harness import Hurt

    h = Hurt(build, tmp_path_factory.mktemp("recorded"))
    h.start(*h.steady(events=100))
    h.job.communicate()
    h.session.wait_finished()
    wait_gone(h.session.recorder)
    return h.recording


@pytest.mark.parametrize("kind", PLANT)
@pytest.mark.parametrize("name", NAMES)
def test_readers(recorded, hurts, tmp_path, name, kind):
    """A command ends by itself and says what it found; without that name it reads the rest."""
    h = hurts()
    place = tmp_path / "out" / recorded.name
    shutil.copytree(recorded, place)
    remove(place / name)
    PLANT[kind](place / name)
    for words in ["recover"], ["show", "--json"]:
        r = h.sonde("mem", *words, place, timeout=20)
        assert r.returncode in (0, 1), (words, r)
        if name == "events.sonde":
            assert r.returncode == 1 and r.stderr, words
    assert name == "events.sonde" or '"mallocs": 100' in r.stdout


@pytest.mark.parametrize("kind", PLANT)
def test_a_recorder_with_planted_buffers(hurts, kind):
    """In the directory of a running job: what is real is recorded, and the recorder ends."""
    h = hurts()
    h.start(*h.steady(threads=2, events=3000, pace=100))
    h.wait_counted(100)
    for i in range(200):
        PLANT[kind](h.recording / f"{i + 1}-1-1.ring")
    PLANT[kind](h.recording / f"{os.getpid()}-1-1.ring")
    out, err = h.job.communicate(timeout=30)
    assert (h.job.returncode, out, err) == (0, b"done\n", b"")
    h.session.wait_finished()
    assert h.fast_rows() == h.counted
    lost = h.show()["lost"]
    assert lost["events"] == 0


@pytest.mark.parametrize("kind", ["fifo", "device", "loop"])
@pytest.mark.parametrize("name", NAMES[:4])
def test_a_recorder_is_called(hurts, tmp_path, name, kind):
    """By a process of the job, to a directory where that name is taken."""
    h = hurts()
    place = tmp_path / "recording_1_1"
    place.mkdir()
    PLANT[kind](place / name)
    r = subprocess.run(
        [h.build / "bin" / "sonde", "recorder", place],
        env=clean_env(tmp_path),
        capture_output=True,
        timeout=20,
    )
    assert r.returncode >= 0
