# SPDX-License-Identifier: MulanPSL-2.0
"""sonde record: memory, what devices execute, steps, stacks and counters in one recording that all commands
read."""

import json
import subprocess

from recording import clean_env, wait_finished


class Recorded:
    """A job on the simulated NPU, recorded."""

    def __init__(self, build, tmp_path, job, *options, env=None, status=0, out="rec"):
        self.build, self.out = build, tmp_path / out
        words = [build / "bin/sonde", "record", "--mspti", build / "sim/libmspti.so", "-o", self.out]
        self.env = clean_env(tmp_path, SIM_NPU_TIME_SCALE="1", **(env or {}))
        r = subprocess.run([*words, *options, "--", *job], env=self.env, capture_output=True, timeout=60)
        assert r.returncode == status, r.stderr
        self.stdout, self.said = r.stdout.decode(), r.stderr.decode()
        (self.dir,) = self.out.glob("recording_*")
        wait_finished(self.dir)

    def ask(self, *words):
        words = [self.build / "bin/sonde", *map(str, words)]
        r = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr
        return r.stdout

    def timeline(self):
        """Names of processes and tracks, and events by track."""
        path = self.out / "timeline.json"
        self.ask("timeline", "--format=json", "-o", path, self.dir)
        events = json.loads(path.read_text())["traceEvents"]
        names = {}
        for e in events:
            if e.get("name") == "thread_name":
                names[e["pid"], e["tid"]] = e["args"]["name"]
        tracks = {}
        for e in events:
            if e["ph"] != "M":
                key = names.get((e["pid"], e.get("tid")), "") if e["ph"] != "C" else e["name"]
                tracks.setdefault(key, []).append(e)
        return tracks


def simtrain(build, *words):
    return [build / "sim/simtrain", "--quiet", *words]


def test_memory_and_kernels_of_two_ranks(build, tmp_path):
    job = simtrain(build, "--ranks", "2", "--steps", "12")
    got = Recorded(build, tmp_path, job)
    tracks = got.timeline()
    for device in (0, 1):
        kernels = [e for name, t in tracks.items() if name.startswith(f"device {device}: compute") for e in t]
        assert sum(e["name"] == "MatMulV2" for e in kernels) > 50
    assert any(name.startswith("device 0 PTA allocated") for name in tracks)
    assert {f"step {n}" for n in range(1, 13)} <= {e["name"] for e in tracks["steps"]}
    memory = json.loads(got.ask("mem", "show", "--json", got.dir))
    assert len(memory["processes"]) == 2
    shown = json.loads(got.ask("activity", "show", "--json", got.dir))
    assert {p["rank"] for p in shown["processes"]} == {0, 1}
    summary = json.loads(got.ask("activity", "summary", "--json", got.out))
    assert {r["rank"] for r in summary["rows"]} == {0, 1}
    assert all(r["steps"] >= 9 for r in summary["rows"])
    assert "none lost" in got.said and "devices were busy" in got.said
    plain = subprocess.run(job, env=clean_env(tmp_path), capture_output=True, text=True, check=True, timeout=60)
    assert got.stdout == plain.stdout
