# SPDX-License-Identifier: MulanPSL-2.0
"""What is missing is counted, whatever fails: no event comes twice, and none goes without a word."""

import contextlib
import json
import os
import re
import signal
import struct

import pytest

from harness import FINISHED, Hurt, wait_gone
from waiting import pause, wait_until

FRAME = struct.Struct("<4sIIIQ")
HEAD, PROC, PACKED = 32, 2, 7  # the last: events; what the recorder measures is not packed


def frames_of(data):
    """Kind, place and size of every frame."""
    at = HEAD
    while at < len(data):
        _, kind, stored, _, _ = FRAME.unpack_from(data, at)
        yield kind, at, FRAME.size + stored
        at += FRAME.size + stored


class Failing:
    """Jobs under msmemscope, and a switch: while it is on, every EVERY-th write to the recording fails."""

    def __init__(self, h, every):
        self.h, self.switch = h, h.tmp / "switch"
        self.before = [h.target("failing_writes"), "events.sonde", str(every), str(self.switch)]
        plain = h.command
        h.command = lambda *words, opts=(): [*self.before, *plain(*words, opts=opts)]

    def on(self):
        self.switch.touch()

    def off(self):
        self.switch.unlink()


def keep(h, events, threads=1, pace=0):
    """Allocations alone: each is a row of the recording, whatever happened to the others."""
    return h.steady(threads=threads, events=events, pace=pace, how="keep")


def sums(h):
    """Events in the recording, and those that it says are lost."""
    shown = h.show()
    return shown["counts"]["mallocs"], shown["lost"]["events"], shown["lost"]["exact"]


def text(h, command="show"):
    r = h.sonde("mem", command, h.recording)
    assert r.returncode == 0, r.stderr
    return r.stdout


def ends_well(h):
    out, err = h.job.communicate(timeout=60)
    # Nothing is said, but for a loss, or that a busy machine's recorder is not through: in one line.
    assert (h.job.returncode, out, err.count(b"\n")) == (0, b"done\n", bool(err)), err
    said = rb"events recorded, .*([1-9]\d* lost|the dumps lack)|the files are still being written; "
    assert not err or re.search(said, err), err
    h.session.wait_finished()
    wait_gone(h.session.recorder)  # it closes the file after that


def kill_both(h):
    pids = [h.job.pid, h.session.recorder]
    for how in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, how)
    h.job.wait()
    wait_gone(pids[1])


# --- the recording cannot be written ---


def test_every_second_write_fails(hurts):
    """Another attempt succeeds, so nothing is lost."""
    h = hurts()
    Failing(h, 2).on()
    h.start(*keep(h, 6000, threads=2, pace=20))
    ends_well(h)
    assert sums(h) == (12000, 0, True)
    assert "No events were lost." in text(h)
    assert not list(h.recording.glob("*.ring"))


def fail_for_a_while(h, failing):
    """Some events are in the recording, some are not: more than its tries wait for."""
    h.wait_counted(2000)
    failing.on()
    size = lambda: (h.recording / "events.sonde").stat().st_size
    was = wait_until(size, "frames")
    log = h.recording / "msmemscope.log"
    wait_until(lambda: "cannot write to the recording" in log.read_text(), "the last of its tries")
    at = h.counted
    h.wait_counted(at + 20000)
    assert size() <= was + (1 << 20)


def test_writes_fail_for_a_while(hurts):
    """The gap is counted to the event, and told while the job runs."""
    h = hurts()
    failing = Failing(h, 1)
    h.start(*keep(h, 60000, pace=50))
    fail_for_a_while(h, failing)
    failing.off()
    wait_until(lambda: sums(h)[1], "the loss in the recording of the running job")
    ends_well(h)
    events, lost, exact = sums(h)
    assert lost > 0 and exact and events + lost == h.counted == 60000
    words = f"{lost:,} events were lost"
    assert words in text(h)
    assert f"{lost} events of process {h.job.pid} are missing" in text(h, "leaks")
    (why,) = [n for n in h.show()["notes"] if "could not be written to the recording" in n]
    assert why.startswith(f"{lost} events") and "buffers" not in "".join(h.show()["notes"])
    report = (h.recording / "report.txt").read_text()
    assert f"{lost} events were lost, so this report is incomplete.\n" in report
    log = (h.recording / "msmemscope.log").read_text()
    assert log.count("cannot write to the recording") == 1
    assert log.count("the recording can be written again") == 1


@pytest.mark.parametrize("recovered", [False, True])
def test_writes_fail_until_both_are_killed(hurts, recovered):
    """The recording does not know of the loss; the buffers do."""
    h = hurts()
    failing = Failing(h, 1)
    h.start(*keep(h, 0, threads=2, pace=50))
    fail_for_a_while(h, failing)
    kill_both(h)
    events, lost, exact = sums(h)
    assert not exact and events + lost < h.counted
    assert "How many events were lost is unknown." in text(h)
    assert "How many more events are missing is unknown." in text(h, "leaks")
    if recovered:
        h.recover()
        events, lost, exact = sums(h)
        assert exact and lost > 0
        assert h.counted <= events + lost <= h.counted + 2


def test_writes_fail_to_the_end(hurts):
    """Not even the end can be written: it is missing, and recover brings it."""
    h = hurts()
    failing = Failing(h, 1)
    h.start(*keep(h, 40000, pace=50))
    fail_for_a_while(h, failing)
    ends_well(h)
    assert not sums(h)[2] and "unknown" in text(h)
    assert list(h.recording.glob("*.ring")), "it knows how much is missing"
    failing.off()
    h.recover()
    events, lost, exact = sums(h)
    assert exact and lost > 0 and events + lost == 40000
    assert "nothing to recover" in h.recover()


def test_the_beginning_cannot_be_written(hurts):
    """The frame that names the process comes before its first batch, however late."""
    h = hurts()
    failing = Failing(h, 1)
    words = " ".join(map(str, keep(h, 40000, pace=50)))
    h.start("sh", "-c", f"touch {failing.switch}; exec {words}")
    h.wait_counted(20000)
    failing.off()
    ends_well(h)
    events, lost, exact = sums(h)
    assert exact and 0 < lost < 40000 and events + lost == 40000


def test_a_frame_is_missing(hurts):
    """Cut out of the recording, whoever did it: noticed, and counted to the event."""
    h = hurts()
    h.start(*keep(h, 20000, pace=20))
    ends_well(h)
    path = h.recording / "events.sonde"
    data = path.read_bytes()
    batches = [(at, at + size) for kind, at, size in frames_of(data) if kind == PACKED]
    assert len(batches) > 4
    for begin, end in batches[2], batches[-1]:
        path.write_bytes(data[:begin] + data[end:])
        events, lost, _ = sums(h)
        assert events < 20000 and events + lost == 20000
        assert "events were lost" in text(h)


def test_damaged_bytes_in_the_middle(hurts):
    """A damaged frame is passed over and counted to the event, the rest is read; recover keeps it."""
    h = hurts()
    h.start(*keep(h, 20000, pace=20), opts=["--call-stack=c:4"])
    ends_well(h)
    path = h.recording / "events.sonde"
    whole = path.read_bytes()
    frames = list(frames_of(whole))
    batches = [(at, size) for kind, at, size in frames if kind == PACKED]
    assert len(batches) > 6
    for hit in ([batches[3]], batches[1:6:2], [batches[-1]], [batches[0], batches[-1]]):
        data = bytearray(whole)
        for at, size in hit:
            middle = at + size // 2
            data[middle : middle + 8] = bytes(b ^ 0x55 for b in data[middle : middle + 8])
        path.write_bytes(data)
        shown = h.show()
        events, lost, exact = sums(h)
        # The first one has what is not a row of its own, too: objects that stacks point into.
        few = 20 if batches[0] in hit else 0
        assert 0 < lost < 20000 and exact and 20000 <= events + lost <= 20000 + few, hit
        (said,) = [n for n in shown["notes"] if "damaged" in n]
        assert f"in {len(hit)} place{'s' if len(hit) > 1 else ''}" in said
        assert "cut off" not in text(h)
    # The stacks were in the first: unknown is not the same as none, and it is said.
    assert h.show()["lost"]["stacks"] > 0
    assert "unknown, damaged in the recording" in text(h, "peak")
    r = h.sonde("mem", "export", "-o", h.tmp / "again", h.recording)
    assert r.returncode == 0 and "damaged" in r.stderr
    # Half a header: the search finds the next frame.
    at = batches[3][0]
    path.write_bytes(whole[: at + 4] + b"\0" * 12 + whole[at + 16 :])
    events, lost, exact = sums(h)
    assert lost > 0 and exact and events + lost == 20000
    # Without the process' own frame nobody knows whose events these are.
    at, size = next((at, size) for kind, at, size in frames if kind == PROC)
    path.write_bytes(whole[: at + 40] + b"\xff" * 8 + whole[at + 48 :])
    assert not sums(h)[2] and "20,0" not in text(h)
    assert any("of which process" in n for n in h.show()["notes"])


def test_a_recording_without_an_end(hurts):
    """Copied without the file beside it while it was written: nobody knows what came after."""
    h = hurts()
    h.start(*keep(h, 100))
    ends_well(h)
    path = h.recording / "events.sonde"
    path.write_bytes(path.read_bytes()[: -FRAME.size])
    (h.recording / "session").unlink()
    assert not sums(h)[2]
    said = text(h)
    assert "The recording has no end" in said and "No events were lost" not in said


QUESTIONS = ["show", "leaks", "gaps", "peak", "owners", "oom", "inefficient", "watch"]


def test_every_answer_says_first_that_it_is_incomplete(hurts):
    """What is left must not read like all there is: text and JSON begin with what is missing."""
    h = hurts()
    h.start(*keep(h, 3000, pace=6))
    ends_well(h)
    path, out = h.recording / "events.sonde", ["-o", h.tmp / "result"]
    whole = path.read_bytes()
    batches = [(at, size) for kind, at, size in frames_of(whole) if kind == PACKED]
    spoiled = bytearray(whole)
    spoiled[batches[1][0] + batches[1][1] // 2] ^= 0xFF
    cases = [
        (bytes(spoiled), r"[0-9.]+ K?i?B of the file are damaged; [0-9,]+ events were lost"),
        (whole[: batches[0][0] + 9], "the file is cut off at its end, how much is missing is unknown"),
        (whole[: batches[0][0]], "events may be missing, how many is unknown"),
    ]
    for question in QUESTIONS:
        said = json.loads(h.sonde("mem", question, "--json", h.recording).stdout)
        assert said["incomplete"] is None and said["lost"]["exact"], question
        assert not text(h, question).startswith("Incomplete")
    for data, words in cases:
        path.write_bytes(data)
        for question in QUESTIONS:
            begin = rf"Incomplete: {words}\. What follows is from the rest\."
            said = " ".join(text(h, question).split())
            assert re.match(begin, said), (question, said[:300])
            assert "where it can be seen" not in said, "nobody knows what the job did"
            answer = json.loads(h.sonde("mem", question, "--json", h.recording).stdout)
            assert list(answer)[:2] == ["incomplete", "lost"]
            assert said.startswith(answer["incomplete"])
        if data is cases[0][0]:  # the others have nothing to compare
            r = h.sonde("mem", "compare", "--level=site", *out, h.recording, h.recording)
            assert r.stdout.startswith("Incomplete base: ") and "Incomplete compare: " in r.stdout


# --- the buffers ---


def test_losses_of_a_job_that_is_killed(hurts):
    """Buffers were full: the recording has the count before the process ends."""
    h = hurts()
    h.start(*keep(h, 0, pace=0), opts=["--buffer-mb=1", "--wait-ms=0"])
    h.wait_counted(1000)
    recorder = h.session.recorder
    os.kill(recorder, signal.SIGSTOP)
    at = h.counted
    h.wait_counted(at + 200000)
    os.kill(recorder, signal.SIGCONT)
    wait_until(lambda: sums(h)[1], "the loss in the recording of the running job")
    kill_both(h)
    _, lost, exact = sums(h)
    assert lost > 0 and not exact
    assert "At least " in text(h)
    h.recover()
    events, lost, exact = sums(h)
    assert exact and h.counted <= events + lost <= h.counted + 1


def test_a_recorder_that_takes_too_long(hurts):
    """The job ends without it, and says where its files will be."""
    h = hurts()
    h.start(*keep(h, 10000, pace=100))
    h.wait_counted(1000)
    recorder = h.session.recorder
    os.kill(recorder, signal.SIGSTOP)
    said = h.job.communicate(timeout=60)[1].decode()
    os.kill(recorder, signal.SIGCONT)
    assert "still being written" in said and str(h.recording) in said, said


def test_a_buffer_that_cannot_be_read(hurts):
    """Its head is damaged: it stays, and what was in it is not passed over in silence."""
    h = hurts()
    h.start(*keep(h, 0, pace=100))
    h.wait_counted(1000)
    kill_both(h)
    (ring,) = h.recording.glob("*.ring")
    with open(ring, "r+b") as f:
        f.write(b"damaged!")
    r = h.sonde("mem", "recover", h.recording)
    assert r.returncode == 0 and "1 buffer cannot be read" in r.stdout
    assert str(ring) in r.stderr and ring.exists()
    assert not sums(h)[2] and "could not be recorded" in text(h)


# --- buffers that cannot be removed ---


@contextlib.contextmanager
def read_only(path):
    path.chmod(0o555)
    try:
        yield
    finally:
        path.chmod(0o755)


def busy_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            ticks = f.read().rpartition(")")[2].split()[11:13]
    except FileNotFoundError:
        return 0
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


class As(Hurt):
    """The same as another user."""

    def __init__(self, users, user):
        super().__init__(users.build, user.home)
        self.user = user

    def start(self, *words, opts=(), **kw):
        self.job = self.user.popen(*self.command(*words, opts=opts), **kw)
        return self.job

    def sonde(self, *words, timeout=60):
        return self.user.run(str(self.build / "bin" / "sonde"), *map(str, words), timeout=timeout)


def test_a_buffer_that_cannot_be_removed(users):
    """It is read once, whoever comes by, and one line says that it is still there."""
    h = As(users, users.alice)
    h.start(*keep(h, 20000, pace=200))
    h.wait_counted(1000)
    recorder = h.session.recorder
    with read_only(h.recording):
        h.job.wait()
        h.session.wait_finished()
        pause(0.3, "it would be read again")
        assert busy_seconds(recorder) < 10
        (ring,) = h.recording.glob("*.ring")
        assert sums(h)[:2] == (20000, 0)
        log = (h.recording / "msmemscope.log").read_text()
        assert len(re.findall(rf"cannot remove '{ring}'", log)) == 1
        assert h.session.state == FINISHED
        size = (h.recording / "events.sonde").stat().st_size
        assert "nothing to recover" in h.sonde("mem", "recover", h.recording).stdout
        assert (h.recording / "events.sonde").stat().st_size == size
    assert "nothing to recover" in h.recover(), "and the buffer goes, when it can"
    assert sums(h)[:2] == (20000, 0) and h.fast_rows() == 20000


def test_a_second_recorder_finds_the_buffer(users):
    """A process that joins when the first recorder has left calls another one."""
    h = As(users, users.alice)
    words = " ".join(map(str, keep(h, 3000, pace=100)))
    gate, done = h.tmp / "gate", h.tmp / "done"
    later = f"while [ ! -e {gate} ]; do sleep 0.02; done; {words}; touch {done}"
    h.start("sh", "-c", f"{words}; ({later}) >/dev/null 2>&1 </dev/null & exit 0")
    h.wait_counted(500)
    with read_only(h.recording):
        h.job.wait()
        h.session.wait_finished()
        wait_gone(h.session.recorder)
    assert len(list(h.recording.glob("*.ring"))) == 1
    users.alice.do(gate.touch)
    wait_until(done.exists, "the later one")
    h.session.wait_finished()
    assert h.counted == 6000 and sums(h)[:2] == (6000, 0)
