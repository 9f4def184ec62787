# SPDX-License-Identifier: MulanPSL-2.0
"""Rounds with recorded memory. The job counts its own events in a file (tests/targets/counted.h);
afterwards what it counted is in the recording, or the recording says how much is lost."""

import contextlib
import csv
import functools
import os
import re
import signal
import subprocess
import tempfile

from faults import SIGNALS
from harness import FINISHED, Hurt
from rounds import open_db, require, wait_ended
from waiting import wait_until

NOT_RUN = b"was not run"
EVENTS = ("MALLOC", "FREE")
# The last line of a recording, which comes only when something is missing from it.
MISSED = re.compile(
    rb"\[msmemscope\] (Info: \d+ events recorded( so far)?, (?=.*([1-9]\d* lost|could not be recorded at all"
    rb"|the dumps lack)).*|Warn: .* was deleted while the job ran: .*)\n"
)
SIZE = re.compile(r'\bsize"?: ?"?(\d+)')


# --- jobs ---


class Job(Hurt):
    """A job under msmemscope. `slack`: how many events may be under way when it is killed."""

    def __init__(self, r, *words, slack, opts=(), out="out"):
        super().__init__(r.build, r.dir, out)
        self.count_file = r.dir / "count"
        self.round, self.words, self.slack, self.opts = r, words, slack, list(opts)

    def begin(self):
        r = self.round
        r.note(" ".join(map(str, self.command(*self.words, opts=self.opts))))
        r.started(self.start(*self.words, opts=self.opts, env=r.env()))

    def events_made(self):
        return self.counted

    def is_mine(self, _size):
        return True


class HostJob(Job):
    """Its events are those of sizes that nothing else in the process has."""

    def is_mine(self, size):
        return size % 4096 == 7


class TrainJob(Job):
    """simtrain makes the same events in every run; a recording without faults has said how many."""

    def events_made(self):
        return events_of_simtrain(self.round.build, *map(str, self.words[1:]))


@functools.lru_cache(maxsize=None)
def events_of_simtrain(build, *words):
    with tempfile.TemporaryDirectory(prefix="sonde_soak_") as place:
        h = Hurt(build, place)
        assert h.run(build / "sim" / "simtrain", *words).returncode == 0
        return count_events(h.show())


def count_events(shown):
    return shown["counts"]["mallocs"] + shown["counts"]["frees"]


def output_options(rng):
    opts = [f"--format={rng.choice(('csv', 'csv', 'db'))}"]
    if rng.random() < 0.3:
        opts.append("--call-stack=c:8")
    if rng.random() < 0.3:
        opts += ["--buffer-mb=1", f"--wait-ms={rng.choice((0, 20))}"]
    return opts


def make_job(r, out):
    rng, opts = r.rng, output_options(r.rng)
    endless = r.victim in ("job", "both", "recover") and r.fault in SIGNALS or r.victim == "recover"
    threads, pace = rng.randint(1, 4), rng.choice((0, 50, 100, 500))
    events = 0 if endless else rng.randint(3000, 20000)
    count = r.dir / "count"
    target = lambda name: r.build / "targets" / name
    if r.part == "tree":
        each = rng.randint(3, 10)
        words = (target("storm"), count, "forks", threads, each)
        return Job(r, *words, slack=4 * threads, opts=opts, out=out)
    if r.part == "train":
        words = ("--quiet", "--steps", rng.choice((20, 60)), "--step-ms", rng.choice((0, 2)))
        return TrainJob(r, r.build / "sim" / "simtrain", *words, slack=0, opts=opts, out=out)
    if r.part == "host":
        words = (target("steady_host"), count, threads, events, pace, "return")
        return HostJob(r, *words, slack=threads, opts=[*opts, "--device=npu,cpu"], out=out)
    words = (target("steady"), count, threads, events, pace, "return")
    return Job(r, *words, slack=threads, opts=opts, out=out)


# --- a round ---


def run_memory(r):
    job = make_job(r, "disk/out" if r.victim == "disk" else "out")
    if r.victim == "disk":
        disk = r.small_disk(r.rng.randint(2, 24))
        if r.rng.random() < 0.2:
            disk.fill(r.rng.randint(0, 1 << 20))  # full before anything begins
    job.begin()
    if not wait_begun(job):
        return check_not_run(r, job)
    r.wait_any_moment(80)
    hurt_recorder = hurt(r, job)
    ended_well(r, job)
    r.lift_faults()
    if r.disk:
        r.disk.grow()
    wait_recorder(r, job)
    if r.victim == "recover":
        recover_with_faults(r, job)
    verdict = check_recording(r, job, hurt_recorder)
    r.wait_alone()
    r.check_left_files()
    return verdict


def wait_begun(job):
    """Until its recorder lives and some events are counted; False: the job ended before that."""
    some = job.round.rng.choice((1, 1, 100, 1000))

    def begun():
        if job.job.poll() is not None:
            return True
        with contextlib.suppress(ValueError, OSError, AssertionError):
            return job.session.recorder and (isinstance(job, TrainJob) or job.counted >= some)
        return False

    wait_until(begun, "the job to begin", 30, 0.002)
    return list(job.out.glob("recording_*")) and (job.job.poll() is None or job.job.returncode == 0)


def hurt(r, job):
    """True where the recorder may have lost its files by it."""
    recorder = job.session.recorder
    if r.victim == "job":
        r.strike(job.job.pid)
        return False
    if r.victim in ("both", "recover"):
        kill_both(r, job, recorder)
        return True
    if r.victim == "disk":
        r.disk.fill(r.rng.choice((0, 0, 100000, 1 << 20)))
        if r.rng.random() < 0.5:
            r.wait_any_moment(200)
            r.disk.lift()
        return True
    r.strike(recorder)
    return True


def kill_both(r, job, recorder):
    """Both stop, then both die: neither sees the end of the other."""
    pids = [job.job.pid, recorder]
    r.rng.shuffle(pids)
    for sig in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)


def ended_well(r, job):
    """The job's status and output are those that it has without us."""
    out, err = job.job.communicate(timeout=90)
    r.note(f"the job ended with {job.job.returncode}, {out[-200:]!r}, {err[-500:]!r}")
    status = job.job.returncode
    killed = {-SIGNALS[r.fault]} if r.victim == "job" and r.fault in SIGNALS else set()
    if r.victim in ("both", "recover"):
        killed = {-signal.SIGKILL}
    if killed and status in killed:
        return
    require(not killed or r.part in ("tree", "train"), f"the job ended with {status}")
    require(status == 0, f"the job ended with {status}")
    # With its memory limited the C library has no buffer to print from.
    if (r.victim, r.fault) != ("job", "memory"):
        require(out.endswith((b"done\n", b"calm\n")) or r.part == "train", f"the job said {out!r}")
        require(not err or MISSED.fullmatch(err), f"the job's stderr has {err!r}")


def check_not_run(r, job):
    """No room for a recording from the beginning: that is said, and nothing is left."""
    out, err = job.job.communicate(timeout=60)
    r.note(f"the job ended with {job.job.returncode}, {out[-200:]!r}, {err[-500:]!r}")
    require(job.job.returncode == 1 and NOT_RUN in err, f"{job.job.returncode}: {err!r}")
    r.lift_faults()
    r.wait_alone()
    left = list(job.out.glob("recording_*/*")) if job.out.exists() else []
    require(not left, f"left of a job that was not run: {left}")
    return "loss"


def wait_recorder(r, job):
    """The recorder ends by itself after the job, whatever has happened to it."""
    wait_ended(job.session.recorder, 60)
    r.wait_alone(60)


def recover_with_faults(r, job):
    """`recover` itself is hurt, some times; the last one of run_memory() is not."""
    sonde = r.build / "bin" / "sonde"
    for _ in range(r.rng.randint(1, 4)):
        p = r.started(
            subprocess.Popen([sonde, "mem", "recover", job.recording], env=job.env(**r.env()),
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        )  # fmt: skip
        r.wait_any_moment(60)
        r.strike(p.pid)
        p.wait(60)
        r.lift_faults()


# --- what is left ---


def check_recording(r, job, hurt_recorder):
    shown = job.show()  # readable as it is
    if hurt_recorder or job.session.state != FINISHED:
        r.note(job.recover().strip())
        shown = job.show()
        again = job.recover()
        require("nothing to recover" in again, f"a second recover said: {again}")
    made, recorded = job.events_made(), count_recorded(job, shown)
    lost, notes = shown["lost"]["events"], " ".join(shown["notes"])
    r.note(f"made {made}, recorded {recorded}, lost {lost}, failed calls {r.words.failed}, {notes}")
    require(recorded <= made + job.slack, f"{recorded} events of {made}: some stand twice")
    unknown = not shown["lost"]["exact"] or "could not be recorded" in notes
    # A FREE whose MALLOC is lost is in the recording, and in no count: at most one for each that is lost.
    hidden = orphans(job, recorded, lost)
    require(unknown or recorded + hidden + lost >= made,
            f"{made - recorded - hidden - lost} events lost silently")  # fmt: skip
    return "loss" if lost or unknown else "exact"


def count_recorded(job, shown):
    """Events that really happened: rows that were not made up, for blocks of which no FREE is known.
    The dumps have the rows that the recording has."""
    rows = list(rows_of(job.out))
    expected = count_events(shown) + shown["counts"]["synthetic_frees"]
    notes, lost = " ".join(shown["notes"]), shown["lost"]["events"]
    fewer = "dump files lack" in notes and len(rows) < expected
    more = expected < len(rows) <= expected + 2 * lost  # what the recording could not take
    require(len(rows) == expected or fewer or more,
            f"{len(rows)} rows in the dumps, {expected} in the recording: {notes}")  # fmt: skip
    if len(rows) != expected:
        return count_events(shown)
    return sum(not made_up and job.is_mine(size) for made_up, size in rows)


def orphans(job, recorded, lost):
    """How many they can be; a recorder that wrote everything itself has said how many records it wrote."""
    log = (job.recording / "msmemscope.log").read_text()
    said = re.findall(r"recorder: (\d+) events in", log)
    exact = len(said) == 1 and type(job) is Job
    return min(max(int(said[0]) - recorded, 0), lost) if exact else lost


def rows_of(out):
    """(made up, size) of every allocation and free in the dumps. A file whose first write failed is
    empty."""
    for path in out.glob("msmemscope_*/device_*/dump/*"):
        if not path.stat().st_size:
            continue
        if path.suffix == ".db":
            yield from rows_of_db(path)
        elif path.suffix == ".csv":
            yield from rows_of_csv(path)


def row_of(attr):
    found = SIZE.search(attr)
    return "shadow" in attr, int(found[1]) if found else 0


def rows_of_csv(path):
    with open(path, newline="") as f:
        rows = csv.reader(f)
        head = next(rows)
        event, attr = head.index("Event"), head.index("Attr")
        for row in rows:
            require(len(row) == len(head), f"{path}: a row with {len(row)} cells")
            if row[event] in EVENTS:
                yield row_of(row[attr])


def rows_of_db(path):
    with open_db(path) as db:
        for event, attr in db.execute('select "Event", "Attr" from memscope_dump'):
            if event in EVENTS:
                yield row_of(attr)
