# SPDX-License-Identifier: MulanPSL-2.0
"""include/sonde/sonde.h: steps, marks, ranges, labels and windows of a C program."""

import pytest

DEFERRED = ["--collect-mode=deferred"]


def sizes(rows):
    return [int(r.attr["size"]) for r in rows]


def by_size(got, event):
    rows = [r for r in got.of(event) if r.type == "HAL"]
    return {int(r.attr["size"]): r for r in rows}


@pytest.mark.parametrize("story", ["windows", "labels", "steps", "ranges", "marks"])
def test_without_the_library_nothing_happens(record, story):
    r = record.plain("api", story)
    assert (r.returncode, r.stdout, r.stderr) == (0, b"done\n", b"")
    got = record("api", story)
    assert (got.returncode, got.stdout, got.stderr) == (0, b"done\n", b"")


def test_windows(record):
    got = record("api", "windows", opts=DEFERRED)
    malloc, free = by_size(got, "MALLOC"), by_size(got, "FREE")
    starts = [r.time for r in got.of("SYSTEM", type="START_TRACE")]
    stops = [r.time for r in got.of("SYSTEM", type="STOP_TRACE")]
    assert len(starts) == len(stops) == 2
    assert starts[0] < stops[0] < starts[1] < stops[1]
    # 2000 and 6000 came and went unseen; 8000 was allocated after the last window.
    assert malloc.keys() == free.keys() == {1000, 3000, 4000, 5000, 7000}
    # From before a window: there since it opened, and marked.
    assert malloc[1000].time == starts[0] and malloc[1000].attr["shadow"] == "true"
    assert malloc[5000].time == starts[1] and malloc[5000].attr["shadow"] == "true"
    for n in (3000, 4000, 7000):
        assert "shadow" not in malloc[n].attr
    # Freed by the job, in a window or outside; outside there are no sums. 7000 never was.
    for n in (1000, 3000, 4000, 5000):
        assert "shadow" not in free[n].attr
        assert ("used" in free[n].attr) == (n in (1000, 3000))
    assert free[7000].attr["shadow"] == "true"
    assert stops[0] <= free[4000].time <= starts[1]
    assert free[5000].time >= stops[1] and free[7000].time >= stops[1]
    # The sums count what was there before.
    assert malloc[3000].attr["used"] == "4000"
    assert malloc[7000].attr["used"] == "12000"


def test_deferred_without_start_records_nothing(record):
    got = record("simtrain", "--steps", 3, opts=DEFERRED)
    assert got.processes == []
    r = record.sonde("mem", "show", got.dir)
    assert r.returncode == 0, r.stderr


def test_stop_without_deferred(record):
    """A window can also be closed and opened again in a run that records from the beginning."""
    got = record("api", "windows")
    malloc = by_size(got, "MALLOC")
    assert malloc.keys() == {1000, 2000, 3000, 4000, 5000, 7000}
    assert "shadow" not in malloc[1000].attr and "shadow" in malloc[5000].attr


def test_blocks_that_change_hands_before_the_window(record):
    """Unrecorded events have coarse times: frees must not be taken for those of other blocks."""
    got = record("handoff", 20000, opts=DEFERRED)
    assert sizes(got.of("MALLOC")) == [777], "everything else was freed before the window"


def test_labels_are_owners(record):
    got = record("api", "labels")
    owner = {n: r.attr.get("owner") for n, r in by_size(got, "MALLOC").items()}
    assert owner[2000].endswith("@outer") and owner[2000].startswith("CANN@")
    assert owner[3000].endswith("@outer@inner; with a comma")
    assert owner[4000] == owner[2000]
    assert owner[5000] is None
    assert owner[1000].endswith("@late"), "told after its row was written"
    late = by_size(got, "FREE")
    assert late[1000].attr["owner"].endswith("@late")
    assert not any("owner" in late[n].attr for n in (2000, 3000, 4000, 5000))


def test_steps_by_call(record):
    got = record("api", "steps")
    steps = got.of("SYSTEM", type="STEP")
    assert [r.name for r in steps] == ["1", "2", "3", "4"]
    assert {r.device for r in steps} == {"0"}
    mallocs = by_size(got, "MALLOC")
    for n, step in enumerate(steps, 1):
        assert mallocs[n * 1000].time < step.time
    got = record("api", "steps", opts=["--steps=2,4"])
    assert sorted(by_size(got, "MALLOC")) == [2000, 4000]


def test_steps_by_range(record):
    """Rows inside the listed steps only, and whatever their blocks need to be whole."""
    got = record("api", "ranges", opts=["--steps=2,4"])
    malloc, free = by_size(got, "MALLOC"), by_size(got, "FREE")
    assert malloc.keys() == free.keys() == {100000, 1001, 2000, 2001, 3001, 4000, 4001}
    starts = got.of("MSTX", type="Range_start")
    assert [r.name for r in starts] == ["step start"] * 2
    for n, start in ((100000, 0), (1001, 0), (3001, 1)):
        assert malloc[n].attr["shadow"] == "true" and malloc[n].time == starts[start].time
    assert malloc[2000].attr["used"] == "103001"
    # 2001 dies in step 3: outside, so that its row is there without sums.
    assert "used" not in free[2001].attr and "shadow" not in free[2001].attr
    assert free[4000].attr["used"] == str(100000 + 4001)
    ends = got.of("MSTX", type="Range_end")
    assert len(ends) == 2

def test_marks_survive_the_formats(record):
    got = record("api", "marks")
    names = [r.name for r in got.of("MSTX", type="Mark")]
    assert names[:2] == ["plain", 'with, comma "quotes" and\nnewline']
    assert names[2] == "", "a spreadsheet would run it"
    assert names[3] == ""
    assert names[4].endswith(" not utf-8") and "\ufffd" in names[4]
    assert names[5] == "Grüße 你好"
    assert names[6] == "x" * 1024
    assert len(names) == 8
    ends = [r.name for r in got.of("MSTX", type="Range_end")]
    assert ends == ["Range end from id 1", "Range end from id 12345"]
