# SPDX-License-Identifier: MulanPSL-2.0
"""putils.compare_perf: collecting, aligning, comparing, its files and its exit statuses."""

import json
import os
import re
import threading

import pytest
from putils_package import putils, run  # noqa: F401


@pytest.fixture
def ticks(monkeypatch):
    """Gives the clock its next times."""
    from putils.compare_perf import collector

    def give(*times):
        left = iter(times)
        monkeypatch.setattr(collector.time, "perf_counter_ns", lambda: next(left))

    return give


def cli(*words):
    from putils.compare_perf.cli import main

    return main(list(map(str, words)))


def collected(path, *events):
    words = [w for e in events for w in ("--event", e)]
    assert cli("collect", *words, "--output", path, "--tag", path.stem) == 0
    return path


# --- collecting ---


def test_inclusive_and_exclusive_times(ticks):
    from putils.compare_perf import TimingCollector, TimingEvent

    collector = TimingCollector()
    ticks(100, 150, 220, 300)
    with collector.scope("step"):
        with collector.scope("branch"):
            pass
    assert collector.events == [
        TimingEvent("branch", 150, 220, 70, 70),
        TimingEvent("step", 100, 300, 200, 130),
    ]
    assert collector.summary["step"] == {"call_count": 1, "total_ns": 200, "total_seconds": 2e-7}


def test_short_scopes_are_summed_up_but_not_kept(ticks):
    from putils.compare_perf import TimingCollector, compare_perf

    collector = TimingCollector()
    ticks(0, 99_999_999, 10**9, 11 * 10**8, 0, 5, 0, 5)
    with collector.compare_scope("s", 0.1):
        pass

    @compare_perf("s", collector=collector, threshold_seconds=0.1)
    def double(x):
        return 2 * x

    assert double(4) == 8
    with compare_perf("fresh") as fresh:
        pass
    assert [e.inclusive_ns for e in collector.events] == [10**8]
    assert collector.summary["s"]["call_count"] == 2
    assert (fresh.events, fresh.summary["fresh"]["total_ns"]) == ([], 5)


def test_a_decorated_function_may_call_itself(ticks):
    from putils.compare_perf import TimingCollector, compare_perf

    collector = TimingCollector()

    @compare_perf("f", collector=collector, threshold_seconds=1e-9)
    def count_down(n):
        return n and count_down(n - 1)

    ticks(0, 10, 20, 30, 40, 50)
    count_down(2)
    assert [(e.start_ns, e.exclusive_ns) for e in collector.events] == [(20, 10), (10, 20), (0, 20)]


def test_an_exception_ends_what_it_leaves(ticks):
    from putils.compare_perf import TimingCollector

    collector = TimingCollector()
    ticks(0, 10, 100, 200, 300)
    with pytest.raises(ZeroDivisionError):
        with collector.scope("outer"):
            collector.begin("left open, as by a forward pass that fails")
            1 / 0
    with collector.scope("next"):
        pass
    assert [(e.name, e.inclusive_ns) for e in collector.events] == [("outer", 100), ("next", 100)]


def test_threads_do_not_nest_into_one_another():
    from putils.compare_perf import TimingCollector
    from putils.compare_perf.export import build_chrome_trace

    collector, both = TimingCollector(), threading.Barrier(2)

    def work(name):
        for _ in range(50):
            with collector.scope(name):
                both.wait()  # both are inside
                both.wait()

    threads = [threading.Thread(target=work, args=(n,)) for n in "ab"]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert {n: r["call_count"] for n, r in collector.summary.items()} == {"a": 50, "b": 50}
    assert all(e.inclusive_ns == e.exclusive_ns for e in collector.events)
    assert {e.thread for e in collector.events} == {0, 1}
    assert build_chrome_trace([])["traceEvents"] == []


def test_boundaries_are_waited_for(capsys):
    from putils.compare_perf import TimingCollector

    called = []
    with TimingCollector("boundary", lambda: called.append(1)).scope("s"):
        assert len(called) == 1
    assert len(called) == 2
    # what the user gives may fail; the loop goes on
    with TimingCollector("boundary", lambda: 1 / 0).scope("s"):
        pass
    assert "cannot synchronize" in capsys.readouterr().err


@pytest.mark.parametrize(
    "call, text",
    [
        ("TimingCollector(sync_mode='each')", "Invalid sync_mode: each. Expected one of [none, boundary]"),
        ("compare_perf('')", "scope_name must be a non-empty string"),
        ("compare_perf('  ')", "scope_name must be a non-empty string"),
        ("compare_perf('a', threshold_seconds=0)", "threshold_seconds must be > 0"),
        ("compare_perf('a', threshold_seconds=float('nan'))", "threshold_seconds must be > 0"),
        ("compare_perf('a', sync_mode='x')", "Invalid sync_mode: x. Expected one of [none, boundary]"),
        ("ComparePerfTimingConfig(threshold_seconds=-1)", "threshold_seconds must be > 0"),
        ("measure_overhead(print, print, iterations=0)", "iterations must be > 0"),
    ],
)
def test_bad_arguments(call, text):
    import putils.compare_perf

    with pytest.raises(ValueError, match=re.escape(text)):
        eval(call, vars(putils.compare_perf))


def test_what_a_run_says_of_itself(tmp_path, monkeypatch):
    from putils.compare_perf import config

    monkeypatch.chdir(tmp_path)
    for word in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(word, raising=False)
    said = config.collect_runtime_metadata()
    assert (said["rank"], said["world_size"], said["backend"]) == (0, 1, "none")
    assert (said["pid"], said["commit"]) == (os.getpid(), "unknown")
    git = tmp_path / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text("# pack-refs\nabc123 refs/heads/main\n")
    assert config.collect_runtime_metadata()["commit"] == "abc123"
    (git / "refs/heads/main").write_text("def456\n")
    assert config.collect_runtime_metadata()["commit"] == "def456"
    names = {config.make_timestamped_log_filename(str(tmp_path)) for _ in range(5)}
    assert len(names) == 5
    assert all(re.search(r"/compare_perf_\d{8}T\d{6}\.\d{6}Z_\d+_\d+\.json$", n) for n in names)


def test_overhead(monkeypatch):
    from putils.compare_perf import collector, measure_overhead

    class Clock:  # a real one says now and then that less work takes longer
        perf_counter_ns = iter([0, 100, 1000, 1150]).__next__

    monkeypatch.setattr(collector, "time", Clock)
    calls = []
    found = measure_overhead(lambda: calls.append(0), lambda: calls.append(1), iterations=20)
    assert calls == [0] * 20 + [1] * 20
    assert found == {
        "baseline_total_ns": 100.0, "instrumented_total_ns": 150.0, "overhead_ns": 50.0, "overhead_pct": 50.0,
    }  # fmt: skip


# --- aligning ---


def test_scores_are_the_documented_ones():
    from putils.compare_perf import align_modules

    left = ["encoder.layer.0.attn", "x.layer.3.unit"]
    right = ["enc.block.0.attention", "y.layer.3.unit_a", "y.layer.3.unit_b"]
    found = align_modules(left, right)
    assert found["counts"] == {"matched": 1, "ambiguous": 1, "unmatched": 2}
    pair = found["matched"][0]
    assert (pair["right"], pair["confidence"]) == ("enc.block.0.attention", 1.0)
    assert (pair["status"], pair["source"]) == ("auto_matched", "rule")
    a, b = found["ambiguous"][0]["candidates"]
    parts = a["score_components"]
    assert parts["weights"] == {"token": 0.35, "path": 0.25, "type": 0.2, "layer": 0.12, "order": 0.08}
    # tokens {x,layer,3,unit} and {y,layer,3,unit,a}: 3 of 6; parents 2 of 5, leaf no, depth 4 of 5
    assert [parts[k] for k in ("token", "path", "type", "layer", "order")] == [0.5, 0.26, 0.5, 1, 1]
    assert a["confidence"] == round(0.35 * 0.5 + 0.25 * 0.26 + 0.2 * 0.5 + 0.12 + 0.08, 6)
    assert (b["score_components"]["order"], b["confidence"]) == (0.666667, 0.513333)


def test_the_same_name_is_the_same_module():
    """Scored by parts, 'train.step' reached 0.78 and was ambiguous."""
    from putils.compare_perf import align_modules

    names = ["train.step", "train.loss", "z"]
    found = align_modules(names, names[::-1])
    assert [(p["left"], p["right"]) for p in found["matched"]] == [(n, n) for n in names]


def test_layers_that_are_far_apart():
    from putils.compare_perf.align import _Name, _layer_score

    score = lambda a, b: _layer_score(_Name(f"l.layer.{a}", 0), _Name(f"l.layer.{b}", 0))
    assert [score(1, n) for n in (1, 5, 9, 100)] == [1.0, 0.5, 0.0, 0.0]


def test_confirmed_pairs_are_kept_in_a_file(tmp_path, capsys):
    from putils.compare_perf import AlignmentMappingCache, align_modules

    path = tmp_path / "deep/cache.json"
    left, right = ["x.unit"], ["y.unit_a", "y.unit_b"]
    align = lambda **more: align_modules(left, right, cache=AlignmentMappingCache(path), **more)
    assert align()["counts"]["matched"] == 0
    first = align(confirmed_mappings={"x.unit": "y.unit_b", "nobody": "y.unit_a"})["matched"]
    assert "names a module that is not there" in capsys.readouterr().err
    second = align()["matched"]
    assert [(p["right"], p["status"], p["source"]) for p in first + second] == [
        ("y.unit_b", "confirmed", "manual"),
        ("y.unit_b", "confirmed", "cache"),
    ]
    for text in ("{", "[]", '{"entries": 3}'):
        path.write_text(text)
        assert align()["counts"]["matched"] == 0
    assert "is not used" in capsys.readouterr().err


# --- comparing ---


def test_differences_and_percentiles():
    from putils.compare_perf import compute_diff
    from putils.compare_perf.diff import ZERO_BASELINE_MARKER

    pairs = {"matched": [{"left": l, "right": r} for l, r in ("aA", "bB", "cC")]}
    found = compute_diff(
        pairs,
        {"a": {"total_ns": 100_000_000, "call_count": 2}, "b": {"total_ns": 0, "call_count": 1}},
        {"A": {"total_ns": 130_000_000, "call_count": 5}, "B": {"total_ns": 20_000_000}},
        {"a": [100_000_000, 200_000_000, 300_000_000, 400_000_000]},
        {"A": [120_000_000, 220_000_000, 320_000_000, 520_000_000]},
        enable_rank_aggregation=True,
    )
    a, b = found["modules"]
    assert (a["delta_ms"], a["delta_pct"], a["delta_call_count"]) == (30.0, 30.0, 3)
    assert (a["delta_ms_per_call"], a["delta_pct_per_call"]) == (-24.0, -48.0)
    assert (b["target_ms"], b["delta_pct"]) == (20.0, ZERO_BASELINE_MARKER)
    assert (b["target_ms_per_call"], b["delta_pct_per_call"]) == (20.0, ZERO_BASELINE_MARKER)
    assert found["counts"] == {"matched_pairs": 3, "compared_modules": 2, "excluded_pairs": 1}
    assert found["excluded"][0]["reason"] == "missing_summary"
    ranks = found["rank_aggregation"]
    assert [e["baseline_module"] for e in ranks["excluded"]] == ["b"]
    # linear between the two nearest: 300 + 0.85 * 100, 320 + 0.85 * 200
    assert ranks["modules"][0]["baseline"] == {"p50_ms": 250.0, "p95_ms": 385.0}
    assert ranks["modules"][0]["target"] == {"p50_ms": 270.0, "p95_ms": 490.0}
    assert ranks["modules"][0]["delta"]["p95_pct"] == 27.272727


def test_more_calls_are_no_regression():
    from putils.compare_perf import compute_diff
    from putils.compare_perf.export import build_summary, render_summary_markdown

    names = ("same", "slow", "fast")
    diff = compute_diff(
        {"matched": [{"left": n, "right": n} for n in names]},
        {n: {"total_ns": 50_000_000, "call_count": 5} for n in names},
        {
            "same": {"total_ns": 100_000_000, "call_count": 10},
            "slow": {"total_ns": 48_000_000, "call_count": 4},
            "fast": {"total_ns": 80_000_000, "call_count": 10},
        },
    )
    summary = build_summary({"counts": {}}, diff, {})
    (slow,), (fast,) = summary["top_regressions"], summary["top_improvements"]
    assert (slow["baseline_module"], slow["delta_pct_per_call"], slow["delta_ms"]) == ("slow", 20.0, -2.0)
    assert (fast["baseline_module"], fast["delta_ms_per_call"], fast["delta_ms"]) == ("fast", -2.0, 30.0)
    assert (fast["baseline_call_count"], fast["target_call_count"]) == (5, 10)
    page = render_summary_markdown(summary)
    assert "- fast -> fast: delta_ms_per_call=-2.0, delta_pct_per_call=-20.0, calls=5 -> 10" in page


def spans(trace):
    return [(e["ph"], e["ts"], e["name"]) for e in trace["traceEvents"] if e["ph"] != "M"]


def test_order_of_a_timeline():
    """Ends before beginnings, longer first; spans that a microsecond or nothing separates."""
    from putils.compare_perf.export import build_chrome_trace

    times = [("b", 5000, 9000), ("in", 1000, 2000), ("a", 1000, 5000), ("short", 5100, 5200),
             ("point", 9000, 9000)]  # fmt: skip
    events = [{"name": n, "start_ns": s, "end_ns": e} for n, s, e in times]
    assert spans(build_chrome_trace(events)) == [
        ("B", 1, "a"), ("B", 1, "in"), ("E", 2, "in"), ("E", 5, "a"),
        ("B", 5, "b"), ("B", 5, "short"), ("E", 5, "short"), ("E", 9, "b"),
        ("B", 9, "point"), ("E", 9, "point"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "event, text",
    [
        ({"name": "a", "start_ns": 1}, "index 0: missing required field 'end_ns'"),
        ({"name": "", "start_ns": 1, "end_ns": 2}, "'name' must be a non-empty string"),
        ({"name": "a", "start_ns": 3, "end_ns": 2}, "end_ns is before start_ns"),
        ({"name": "a", "start_ns": "1", "end_ns": 2}, "'start_ns' must be an integer"),
        ([], "expected an object"),
    ],
)
def test_malformed_timelines(event, text):
    from putils.compare_perf.export import build_chrome_trace

    with pytest.raises(ValueError, match=re.escape(text)):
        build_chrome_trace([event])


def test_parents_hold_their_children():
    """A synthetic parent is max(real, 1.01 x children); matched children begin together."""
    from putils.compare_perf.export import build_aligned_stack_chrome_trace

    pairs = [{"left": "p", "right": "q"}, {"left": "p.fc", "right": "q.fc"}]
    ms = {"baseline_ms": 1.0, "target_ms": 9.0, "delta_ms": 8.0, "delta_pct": 800.0}
    rows = [{"baseline_module": p["left"], "target_module": p["right"], **ms} for p in pairs]
    times = [("p.fc", 0, 3_000_000, 1), ("p.only", 0, 1_000_000, 1), ("q.fc", 0, 4_000_000, 2)]
    events = [{"name": n, "start_ns": s, "end_ns": e, "pid": p} for n, s, e, p in times]
    trace = build_aligned_stack_chrome_trace(events, {"matched": pairs}, {"modules": rows})
    begins = {e["name"]: e for e in trace["traceEvents"] if e["ph"] == "B"}
    assert {n: e["args"]["child_match_status"] for n, e in begins.items()} == {
        "p": "parent", "q": "parent", "p.fc": "matched", "q.fc": "matched", "p.only": "unmatched",
    }  # fmt: skip
    p, q = begins["p"]["args"], begins["q"]["args"]
    assert p["parent_mode"] == "synthetic_aligned"
    assert (p["real_parent_duration_ns"], p["synthetic_parent_duration_ns"]) == (1_000_000, 4_040_000)
    assert q["synthetic_parent_duration_ns"] == 9_000_000
    assert begins["p.fc"]["ts"] == begins["q.fc"]["ts"] == 0 and begins["p.only"]["ts"] == 3000


# --- files ---


def test_snapshots(tmp_path, ticks):
    from putils.compare_perf import TimingCollector, compare_perf, dump_compare_perf_snapshot, parse_schema

    collector = TimingCollector()
    ticks(1_000_000_000, 1_250_000_000)
    with compare_perf("train.step", collector=collector, threshold_seconds=1e-9):
        pass
    path = dump_compare_perf_snapshot(
        collector=collector,
        output_dir=tmp_path / "new",
        step=10,
        tag="baseline",
        chrome_trace_filename_template="t{step}.trace.json",
        run_metadata_extra={"source": "test", "tag": "not this"},
    )
    assert path == tmp_path / "new/compare_perf_step_10_baseline.json"
    found = parse_schema(json.loads(path.read_text()))
    assert found["run_metadata"] == {"source": "test", "tag": "baseline", "step": 10}
    assert found["events"] == [
        {"name": "train.step", "start_ns": 10**9, "end_ns": 1250000000, "inclusive_ns": 250000000,
         "exclusive_ns": 250000000}
    ]  # fmt: skip
    assert found["alignment"]["counts"] == {"matched": 0, "ambiguous": 0, "unmatched": 0}
    trace = json.loads((tmp_path / "new/t10.trace.json").read_text())
    assert trace["displayTimeUnit"] == "us"
    assert spans(trace) == [("B", 1000000, "train.step"), ("E", 1250000, "train.step")]
    with pytest.raises(TypeError, match="collector must be a TimingCollector"):
        dump_compare_perf_snapshot(collector=None, output_dir=tmp_path, step=1, tag="x")


SUMMARY = """\
# Compare Performance Summary

## Config Echo
- `baseline`: `{0}/base.json`
- `enable_rank_aggregation`: `False`
- `target`: `{0}/target.json`
- `top_n`: `5`

## Alignment Statistics
- ambiguous: 0
- matched: 2
- unmatched: 0
- unmatched_left: 0
- unmatched_right: 0

## Diff Statistics
- compared_modules: 2
- excluded_pairs: 0
- matched_pairs: 2
- rank_aggregation_enabled: False

## Top Regressions
- encoder.layer.0.attn -> enc.block.0.attention: delta_ms_per_call=20.0, delta_pct_per_call=20.0, calls=1 -> 1; of all calls delta_ms=20.0, delta_pct=20.0

## Top Improvements
- encoder.layer.1.mlp -> enc.block.1.feedforward: delta_ms_per_call=-20.0, delta_pct_per_call=-50.0, calls=1 -> 1; of all calls delta_ms=-20.0, delta_pct=-50.0
"""


def test_diff_writes_five_files_and_prints_their_paths(tmp_path, capsys):
    base = collected(tmp_path / "base.json", "encoder.layer.0.attn:100", "encoder.layer.1.mlp:40")
    target = collected(
        tmp_path / "target.json", "enc.block.0.attention:120", "enc.block.1.feedforward:20"
    )
    event = json.loads(base.read_text())["events"][1]
    assert (event["start_ns"], event["end_ns"]) == (100_000_000, 140_000_000)
    capsys.readouterr()
    out = tmp_path / "out"
    words = ("--baseline", base, "--target", target, "--output-dir", out)
    assert cli("diff", *words, "--trace-out", tmp_path / "t.json") == 0
    names = ["trace_aligned.json", "trace_aligned_stack.json", "summary.json", "summary.md"]
    paths = [tmp_path / "t.json"] + [out / f"compare_perf_{n}" for n in names]
    assert capsys.readouterr().out.split() == list(map(str, paths))
    assert paths[4].read_text() == SUMMARY.format(tmp_path)
    trace = json.loads(paths[0].read_text())
    assert trace["traceEvents"][0] == {
        "args": {"name": "baseline"}, "name": "process_name", "ph": "M", "pid": 1, "ts": 0,
    }  # fmt: skip
    aligned = [e for e in json.loads(paths[1].read_text())["traceEvents"] if e["ph"] == "B"]
    assert [(e["pid"], e["ts"]) for e in aligned] == [(1, 0), (1, 120000), (2, 0), (2, 120000)]
    summary = json.loads(paths[3].read_text())
    assert summary["top_regressions"][0]["delta_ms"] == 20.0
    again = out.stat().st_ino, paths[3].read_bytes()
    assert cli("diff", *words) == 0 and again == (out.stat().st_ino, paths[3].read_bytes())


def test_ranks_mappings_and_cache_on_the_command_line(tmp_path):
    files = [collected(tmp_path / f"{n}.json", f"{n}:10") for n in ("one", "two")]
    for path, times in zip(files, ([1_000_000, 3_000_000], [2_000_000, 6_000_000])):
        payload = json.loads(path.read_text())
        payload["run_metadata"]["rank_summary"] = {path.stem: times}
        path.write_text(json.dumps(payload))
    words = ["--baseline", files[0], "--target", files[1], "--output-dir", tmp_path]
    words += ["--enable-rank-aggregation", "--alignment-cache", tmp_path / "cache.json"]
    for more in (["--mapping", "one=two"], []):
        assert cli("diff", *words, *more) == 0
        ranks = json.loads((tmp_path / "compare_perf_summary.json").read_text())["diff"]["rank_aggregation"]
        assert ranks["modules"][0]["delta"]["p50_ms"] == 2.0


def valid(tmp_path):
    return collected(tmp_path / "valid.json", "a:1")


EMPTY = {"schema_version": 1, "events": [], "run_metadata": {}, "alignment": {}, "summary": {}}
BAD_LOGS = [
    ('{"schema_version":', 11, "invalid json in input log"),
    ("[]", 11, "incompatible schema in input log"),
    (json.dumps({**EMPTY, "schema_version": 999}), 11, "Incompatible schema_version: expected one of [1], got 999"),
    (json.dumps({**EMPTY, "schema_version": True}), 11, "incompatible schema"),
    (json.dumps({k: v for k, v in EMPTY.items() if k != "summary"}), 11, "Missing required field: summary"),
    (json.dumps({**EMPTY, "events": {}}), 11, "events must be an array"),
    (json.dumps({**EMPTY, "events": [{"name": "a", "start_ns": 1}]}), 11,
     "invalid event in baseline at index 0: missing field 'end_ns'"),
    (json.dumps({**EMPTY, "events": [{"name": "a", "start_ns": 2, "end_ns": 1}]}), 11, "ends before it starts"),
    (json.dumps({**EMPTY, "events": [7]}), 11, "expected an object"),
    (json.dumps({**EMPTY, "summary": {"a": {"total_ns": "x"}}}), 11, "invalid summary of 'a' in baseline"),
    ("[" * 100000, 11, "invalid json"),
    ("\x00\xff", 11, "invalid json"),
    (None, 10, "missing input log"),
]  # fmt: skip


@pytest.mark.parametrize("text, code, words", BAD_LOGS, ids=range(len(BAD_LOGS)))
def test_bad_logs(tmp_path, capsys, text, code, words):
    bad = tmp_path / "bad.json"
    if text is not None:
        bad.write_bytes(text.encode("latin-1"))
    assert cli("diff", "--baseline", bad, "--target", valid(tmp_path), "--output-dir", tmp_path / "o") == code
    err = capsys.readouterr().err
    assert err.startswith(f"ERROR[{code}] ") and words in err and err.count("\n") == 1, err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    "words, text",
    [
        (["collect", "--event", "no_duration"], "expected <scope_name>:<duration_ms>"),
        (["collect", "--event", "a:-1"], "expected <scope_name>:<duration_ms>"),
        (["collect", "--event", "a:nan"], "expected <scope_name>:<duration_ms>"),
        (["collect", "--event", ":5"], "expected <scope_name>:<duration_ms>"),
        (["collect"], "--event"),
        (["diff", "--baseline", "a"], "--target"),
        (["diff", "--baseline", "a", "--target", "b", "--top-n", "0"], "argument --top-n: must be > 0"),
        (["diff", "--baseline", "a", "--target", "b", "--mapping", "x"], "<baseline_module>=<target_module>"),
        ([], "command"),
        (["fly"], "fly"),
    ],
)
def test_bad_words(capsys, words, text):
    assert cli(*words) == 2
    err = capsys.readouterr().err
    assert err.startswith("ERROR[2] ") and text in err


def test_what_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli("collect", "--event", "a:1", "--output", tmp_path / "file/out.json") == 12
    assert capsys.readouterr().err.startswith("ERROR[12] ")
    (tmp_path / "link.json").symlink_to(tmp_path / "file")
    collected(tmp_path / "link.json", "a:1")  # replaced, not followed
    assert (tmp_path / "file").read_text() == "" and not (tmp_path / "link.json").is_symlink()


def test_as_a_program(build, tmp_path):
    for module in ("putils.compare_perf", "putils.compare_perf.cli"):
        done = run(build, "-m", module, "diff", "--baseline", "x", "--target", "y", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (10, "ERROR[10] missing input log: x\n")


def test_decorated_coroutines_are_timed_to_their_end():
    import asyncio

    from putils.compare_perf import TimingCollector, compare_perf

    collector = TimingCollector()

    @compare_perf("wait", collector=collector, threshold_seconds=1e-9)
    async def wait(others):
        await asyncio.sleep(0)
        assert collector.summary.get("wait", {"call_count": 0})["call_count"] == others - 1
        return others

    @compare_perf("items", collector=collector, threshold_seconds=1e-9)
    def items():
        yield 1
        assert "items" not in collector.summary

    async def both():
        return await asyncio.gather(wait(1), wait(2))

    assert asyncio.run(both()) == [1, 2] and collector.summary["wait"]["call_count"] == 2
    assert list(items()) == [1] and [e.name for e in collector.events] == ["wait", "wait", "items"]
