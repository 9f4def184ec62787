# SPDX-License-Identifier: MulanPSL-2.0
"""`sonde mem recover` of recordings that name places of others: nothing there is read, written or
deleted, unless the person says so. And dumps that somebody reads meanwhile."""

import os
import pathlib
import shutil
import sqlite3
import subprocess

import pytest

import crafted
from capabilities import lacks
from crafted import Crafted, alloc, run, watch
from harness import wait_gone
from waiting import wait_until

TIME = "19700101000001"  # of Crafted.proc()
PROJECT_DIR = f"msmemscope_1000_{TIME}_ascend"


def state_of(directory):
    """Everything below it: names, owners, rights, times and bytes."""
    found = {}
    for path in sorted(pathlib.Path(directory).rglob("*")):
        st, data = path.lstat(), b""
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as f:
                data = f.read(1 << 20)  # of a ring: all that a reader would change
        found[str(path)] = (st.st_mode, st.st_uid, st.st_nlink, st.st_mtime_ns, st.st_size, hash(data))
    return found


class Handed:
    """A crafted recording below one directory, a victim below another, and who recovers it."""

    def __init__(self, user, build):
        self.user, self.build = user, build
        self.out, self.victim = user.mkdir("out"), user.mkdir("victim")
        self.dir = self.out / "recording_1_1"
        inner = self.victim / PROJECT_DIR / "device_0/dump"
        user.do(lambda: (inner.mkdir(parents=True), (inner / f"memscope_dump_{TIME}.csv").write_text("mine")))

    def craft(self, *records, **more):
        rows = [alloc(i, i << 12) for i in range(10, 60)]
        make = lambda: Crafted(self.dir, **more).proc(0).batch(run(0, 7, *records, *rows)).end(0) and None
        self.user.do(make)

    def plant(self, function):
        self.user.do(function)

    def recover(self, *words, path=None):
        return self.user.run(self.build / "bin/sonde", "mem", "recover", *words, path or self.dir)

    def dump(self, where=None):
        return (where or self.out) / PROJECT_DIR / f"device_0/dump/memscope_dump_{TIME}.csv"

    def rows(self, where=None):
        return self.dump(where).read_text().count("MALLOC")

    def untouched(self):
        return state_of(self.victim)


@pytest.fixture
def handed(users, request):
    return Handed(getattr(users, getattr(request, "param", "root")), users.build)


EVERYBODY = [("alice", "plain"), ("root", "plain"), ("root", "dots"), ("root", "link"), ("root", "process")]


@pytest.mark.parametrize("handed, how", EVERYBODY, indirect=["handed"])
def test_dumps_stay_beside_the_recording(handed, how):
    """It says that they belong elsewhere: in its session, or because a process has chosen so."""
    claim = {
        "plain": handed.victim,
        "dots": f"{handed.out}/../victim",
        "link": handed.out / "sub",
        "process": handed.victim,
    }[how]
    handed.plant(lambda: (handed.out / "sub").symlink_to(handed.victim))
    if how == "process":
        handed.craft(crafted.config(5, str(claim)), outputDir=str(handed.out))
    else:
        handed.craft(outputDir=str(claim))
    before = handed.untouched()
    r = handed.recover()
    assert handed.untouched() == before, r
    assert r.returncode == 0 and handed.rows() == 50, r
    assert "outside of" in r.stdout and "--output-path" in r.stdout, r


def test_dumps_go_elsewhere_when_the_person_says_so(handed):
    handed.craft(outputDir=str(handed.victim))
    r = handed.recover(f"--output-path={handed.victim}")
    assert r.returncode == 0 and "outside" not in r.stdout, r
    assert handed.rows(handed.victim) == 50
    assert not handed.dump().exists()


def test_a_recording_that_was_renamed_is_its_own_place(handed):
    """Its parent is no output path, and belongs to somebody else's files."""
    handed.dir = handed.out / "unpacked"
    handed.craft(outputDir=str(handed.out))
    before = {k: v for k, v in state_of(handed.out).items() if "unpacked" not in k}
    r = handed.recover()
    assert r.returncode == 0 and handed.rows(handed.dir) == 50, r
    assert {k: v for k, v in state_of(handed.out).items() if "unpacked" not in k} == before


@pytest.mark.parametrize("at", ["process", "device", "dump"])
def test_links_among_the_dumps_are_not_followed(handed, at):
    handed.craft(outputDir=str(handed.out))
    link = handed.dump().parents[{"process": 2, "device": 1, "dump": 0}[at]]
    target = handed.victim / link.relative_to(handed.out)
    handed.plant(lambda: (link.parent.mkdir(parents=True, exist_ok=True), link.symlink_to(target)))
    before = handed.untouched()
    r = handed.recover()
    assert handed.untouched() == before, r
    assert r.returncode == 1 and "link" in r.stderr and "written anew" not in r.stdout, r


@pytest.mark.parametrize("how", ["link", "hard link"])
@pytest.mark.parametrize("name", ["events.sonde", "session"])
def test_the_recording_itself_is_no_link(handed, name, how):
    handed.craft(outputDir=str(handed.out))
    moved, there = handed.victim / name, handed.dir / name
    make = lambda: moved.link_to(there) if how == "hard link" else there.symlink_to(moved)
    if hasattr(there, "hardlink_to") and how == "hard link":
        make = lambda: there.hardlink_to(moved)
    handed.plant(lambda: (shutil.move(there, moved), make()))
    before = handed.untouched()
    r = handed.recover()
    assert r.returncode == 1 and name in r.stderr, r
    assert handed.untouched() == before


def test_a_recording_that_is_found_is_no_link(handed):
    handed.dir = handed.victim / "recording_1_1"
    handed.craft(outputDir=str(handed.victim))
    handed.plant(lambda: (handed.out / "recording_1_1").symlink_to(handed.dir))
    before = handed.untouched()
    r = handed.recover(path=handed.out)
    assert handed.untouched() == before, r
    assert r.returncode == 1 and "link" in r.stderr, r


def test_bytes_of_watched_memory_are_moved_from_the_recording_alone(handed):
    handed.craft(watch(5, content=1), outputDir=str(handed.out))
    handed.plant(lambda: ((handed.victim / "1000-1").write_text("mine"), (handed.dir / "watch").symlink_to(handed.victim)))
    before = handed.untouched()
    r = handed.recover()
    assert r.returncode == 0, r
    assert handed.untouched() == before


# --- rings on another file system ---


def name_rings(recording, directory):
    page = bytearray((recording / "session").read_bytes())
    text = os.fsencode(directory) + b"\0"
    page[crafted.RING_DIR_AT : crafted.RING_DIR_AT + len(text)] = text
    (recording / "session").write_bytes(page)


def dump_of(h):
    """The one dump of a job, when it has rows."""
    for path in h.out.glob("msmemscope_*/device_*/dump/memscope_dump_*[bv]"):
        if path.suffix == ".csv" and path.read_bytes().count(b"MALLOC"):
            return path
        if path.suffix == ".db" and has_rows(path):
            return path
    return None


def has_rows(path):
    db = sqlite3.connect(path)
    try:
        return count(db) > 0
    except sqlite3.OperationalError:
        return False
    finally:
        db.close()


def kill_both(h, *opts):
    """Job and recorder in one instant, with rows in the dump and events in the rings."""
    h.start(*h.steady(pace=10), opts=["--buffer-mb=1", *opts])
    h.wait_counted(500)
    wait_until(lambda: dump_of(h), "the dump")
    recorder = h.session.recorder
    for pid in (recorder, h.job.pid):
        os.kill(pid, 19)
    for pid in (recorder, h.job.pid):
        os.kill(pid, 9)
    h.job.wait()
    wait_gone(recorder)
    return dump_of(h)


def test_rings_of_another_recording_are_left_alone(hurts):
    """One names the directory of another's: neither taken nor deleted, until the person names it."""
    mine, evil = hurts("mine"), hurts("evil")
    for h in (mine, evil):
        kill_both(h)
    place = mine.tmp / "sonde-rings-abcdef"
    place.mkdir(mode=0o700)
    (place / "recording").write_text(str(mine.recording))
    for ring in mine.recording.glob("*.ring"):
        shutil.move(ring, place)
    name_rings(mine.recording, place)
    name_rings(evil.recording, place)
    before = state_of(place)
    for words in ([evil.recording], [evil.out]):
        r = evil.sonde("mem", "recover", *words)
        assert r.returncode == 1 and "--rings" in r.stderr and str(place) in r.stderr, r
        assert state_of(place) == before
    r = evil.sonde("mem", "recover", f"--rings={evil.recording}", evil.recording)
    assert r.returncode == 0 and state_of(place) == before, r
    assert evil.fast_rows() >= evil.counted
    # and they are there for whom they belong to
    r = mine.sonde("mem", "recover", mine.recording)
    assert r.returncode == 0, r
    mine.check_exact(1)
    assert not place.exists()


@pytest.mark.parametrize("what", ["missing", "foreign name", "open to others"])
def test_a_directory_of_rings_that_nobody_made(hurts, what):
    h = hurts()
    kill_both(h)
    place = h.tmp / ("rings" if what == "foreign name" else "sonde-rings-abcdef")
    if what != "missing":
        place.mkdir()
        (place / "recording").write_text(str(h.recording))
        place.chmod(0o777 if what == "open to others" else 0o700)
        for ring in h.recording.glob("*.ring"):
            shutil.move(ring, place)
    name_rings(h.recording, place)
    before = state_of(h.tmp)
    r = h.sonde("mem", "recover", h.recording)
    assert r.returncode == 1 and "--rings=DIR" in r.stderr, r
    assert state_of(h.tmp) == before


@pytest.mark.needs("root")
def test_rings_of_an_output_that_is_not_local(hurts):
    """The launcher puts them elsewhere, and `recover` finds them there: no option is needed."""
    h = hurts()
    disk, tmp = h.tmp / "disk", h.tmp / "tmp"
    disk.mkdir(), tmp.mkdir()
    if subprocess.run(["mount", "-t", "ramfs", "none", disk]).returncode:
        lacks("mount", "cannot mount a ramfs")
    try:
        h.out = disk / "out"
        env = h.env
        h.env = lambda **more: env(TMPDIR=tmp, **more)
        kill_both(h)
        (rings,) = tmp.iterdir()
        assert list(rings.glob("*.ring")) and not list(h.recording.glob("*.ring"))
        r = h.sonde("mem", "recover", h.recording)
        assert r.returncode == 0, r
        h.check_exact(1)
        assert not list(tmp.iterdir())
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


# --- the recording of another user ---


def test_root_has_the_rights_of_the_owner(users):
    """What bob plants in his own directory leads root nowhere; and the dumps are bob's."""
    bobs, secret = Handed(users.bob, users.build), users.root.home / "secret"
    secret.mkdir(mode=0o700)
    (secret / "1-1-1.ring").write_bytes(bytes(1 << 20))
    bobs.craft(outputDir=str(secret))
    bobs.plant(lambda: (bobs.dir / "1-1-1.ring").symlink_to(secret / "1-1-1.ring"))
    before = state_of(secret)
    r = users.root.run(users.build / "bin/sonde", "mem", "recover", bobs.dir)
    assert r.returncode == 0 and f"user {users.bob.uid}" in r.stdout, r
    assert state_of(secret) == before
    written = list((bobs.out / PROJECT_DIR).glob("**/*"))
    assert bobs.rows() == 50 and {p.stat().st_uid for p in written} == {users.bob.uid}


def test_root_does_not_use_its_rights_for_the_owner(users):
    """Where he cannot go himself, nothing is done for him."""
    bob, closed = users.bob, users.root.home / "closed"
    closed.mkdir(mode=0o700)
    Crafted(closed / "recording_1_1", outputDir=str(closed)).proc(0).end(0)
    bob.takes(closed / "recording_1_1", *(closed / "recording_1_1").iterdir())
    before = state_of(closed)
    r = users.root.run(users.build / "bin/sonde", "mem", "recover", closed / "recording_1_1")
    assert r.returncode == 1 and "rights" in r.stderr, r
    assert state_of(closed) == before


# --- beside a viewer ---


def count(db):
    return db.execute("SELECT count(*) FROM memscope_dump").fetchone()[0]


@pytest.mark.parametrize("how", ["reads", "locks", "writes"])
def test_a_viewer_has_the_database_open(hurts, how):
    """It keeps the old one. Who opens it after `recover` has every row, and nothing of the old."""
    h = hurts()
    path = kill_both(h, "--format=db")
    viewer = sqlite3.connect(path, isolation_level=None)
    viewer.execute({"reads": "BEGIN", "locks": "BEGIN EXCLUSIVE", "writes": "BEGIN IMMEDIATE"}[how])
    if how == "writes":
        viewer.execute("DELETE FROM memscope_dump")
    old = count(viewer)
    r = h.sonde("mem", "recover", h.recording)
    assert r.returncode == 0 and "written anew" in r.stdout, r
    for _ in range(2):
        new = sqlite3.connect(path)
        rows = new.execute("SELECT Event, Attr FROM memscope_dump").fetchall()
        real = sum(e in ("MALLOC", "FREE") and "shadow" not in a for e, a in rows)
        h.check_exact(1, real)
        assert new.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        new.close()
        if viewer:
            assert count(viewer) == old
            viewer.close()  # rolls back, and cleans up beside what it thinks is its file
            viewer = None
    beside = [p.name for p in path.parent.iterdir() if p != path and p.suffix != ".csv"]
    assert not [n for n in beside if not n.startswith(path.name + "-")], beside


def test_a_dump_that_cannot_be_written_anew_stays(hurts):
    """A file that lacks rows takes nobody's place, and that is said."""
    h = hurts()
    path = kill_both(h)
    before = path.read_bytes()
    limit = f"ulimit -f {len(before) // 1024 // 2 + 1}"
    r = subprocess.run(["bash", "-c", f"trap '' XFSZ; {limit}; exec {h.build}/bin/sonde mem recover {h.recording}"],
                       env=h.env(), capture_output=True, text=True)  # fmt: skip
    assert r.returncode == 1 and "anew" not in r.stdout, r
    assert path.read_bytes() == before
    h.recover()
    h.check_exact(1)
