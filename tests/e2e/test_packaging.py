# SPDX-License-Identifier: MulanPSL-2.0
"""What is in packaging/, each checked by the program that reads it."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.request

import pytest
import rpc_client
from capabilities import lacks, needs
from daemon import Daemon, free_port
from waiting import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
UNITS = sorted((PACKAGING / "systemd").iterdir())


def run(*words, **kw):
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=60, **kw
    )  # fmt: skip


# --- systemd ---


@pytest.fixture
def units(build, tmp_path):
    """Copies of the units that name the programs under test."""
    for u in UNITS:
        text = u.read_text().replace("/usr/local/bin", str(build / "bin"))
        (tmp_path / u.name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", [u.name for u in UNITS])
def test_units_are_valid(units, name):
    needs("systemd")
    env = {**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"}
    r = run("systemd-analyze", "verify", "--man=no", units / name, env=env)
    ours = [x for x in r.stderr.splitlines() if re.search(r"sonde|dynolog", x)]
    assert r.returncode == 0 and not ours, r.stderr


def test_unit_is_hardened(units):
    needs("systemd")
    name = "sonde-daemon.service"
    r = run("systemd-analyze", "security", "--offline=yes", "--threshold=35", units / name)
    if "offline" in r.stderr:
        lacks("systemd", f"systemd-analyze is too old: {r.stderr.strip()}")
    assert r.returncode == 0, r.stdout + r.stderr


def test_jobs_of_all_users_keep_their_sockets():
    """libkineto puts its own socket beside the daemon's; a restart must not take it away. The daemon
    opens the directory itself (test_socket_directory.py)."""
    unit = (PACKAGING / "systemd" / "sonde-daemon.service").read_text()
    assert "RuntimeDirectoryMode=0755" in unit and "RuntimeDirectoryPreserve=yes" in unit
    assert "--ipc-socket-dir /run/sonde " in unit and "RuntimeDirectory=sonde" in unit


def options_of(unit):
    """The words of the daemon's command line in a unit."""
    line = re.search(r"^ExecStart=(.*)$", unit.read_text(), re.M)[1]
    return line.split()


def test_unit_commands_are_understood(build, tmp_path):
    """The daemon takes the options that the units give it."""
    for name in ("sonde-daemon.service", "dynolog.service"):
        words = options_of(PACKAGING / "systemd" / name)
        words[0] = str(build / "bin" / pathlib.Path(words[0]).name)
        words = [re.sub(r"/(etc|run|var)/", f"{tmp_path}/", w) for w in words]
        for sub in ("sonde", "log"):
            (tmp_path / sub).mkdir(exist_ok=True)
        for flags in ("sonde/daemon.flags", "dynolog.gflags"):
            (tmp_path / flags).write_text("--no_such_option\n")
        r = run(*words)
        assert r.returncode == 2 and "line 1: unknown option '--no_such_option'" in r.stderr


def test_socket_unit_starts_the_daemon(build, tmp_path):
    """With the real systemd-socket-activate: the first call starts it and is answered."""
    program = needs("systemd")
    port = free_port()
    words = [program, "-l", f"127.0.0.1:{port}", "--fdname=rpc", build / "bin" / "sonde", "daemon"]
    with open(tmp_path / "log", "w") as log:
        p = subprocess.Popen([*map(str, words), "--nohttp"], stderr=log)
    try:
        def version():
            with contextlib.suppress(ConnectionRefusedError):
                return rpc_client.call(port, {"fn": "getVersion"})["version"]

        wait_until(version, (tmp_path / "log").read_text, 20)
    finally:
        p.terminate()
        assert p.wait(20) == 0


# --- Prometheus and Grafana ---


def test_prometheus_rules():
    needs("prometheus")
    r = run("promtool", "check", "rules", PACKAGING / "prometheus" / "alerts.yml")
    assert r.returncode == 0, r.stdout + r.stderr


@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-kubernetes.yml"])
def test_prometheus_configs(tmp_path, name):
    needs("prometheus")
    shutil.copytree(PACKAGING / "prometheus", tmp_path / "p")
    config = tmp_path / "p" / name
    (tmp_path / "p" / "ca.crt").touch()
    r = run("promtool", "check", "config", config)
    if "kubernetes_sd_configs not found" in r.stdout + r.stderr:
        # built without it, as Debian does: the rest is checked
        text = config.read_text()
        start = text.index("    kubernetes_sd_configs:")
        end = text.index("    relabel_configs:")
        config.write_text(text[:start] + text[end:])
        r = run("promtool", "check", "config", config)
    assert r.returncode == 0, r.stdout + r.stderr


WORDS_OF_PROMQL = set("by on and or unless sum max min count rate increase job instance".split())
ONLY_WITH = {
    # what a machine without the devices, certificates or jobs does not have
    "npu": r"npu_|aicore_|hbm_",
    "gpu": r"gpu_",
    "tls": r"sonde_certificate_",
    "monitored jobs": r"sonde_(device_time_ratio|step_seconds|regression_ratio)$",
    "rest": r"up$|sonde_source_round_seconds$|disk_",
}


def names_in(expression):
    """Names of metrics in an expression: words that are no label, function or keyword."""
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|by \([^)]*\)|on \([^)]*\)", " ", expression)
    return set(re.findall(r"[a-z_][a-z0-9_]*", bare)) - WORDS_OF_PROMQL


def expressions():
    board = json.loads((PACKAGING / "grafana" / "dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    alerts = (PACKAGING / "prometheus" / "alerts.yml").read_text()
    yield from re.findall(r"^\s+expr: (.*)$", alerts, re.M)


def test_dashboard_is_whole():
    board = json.loads((PACKAGING / "grafana" / "dashboard.json").read_text())
    panels = board["panels"]
    assert len({p["id"] for p in panels}) == len(panels)
    places = [p["gridPos"] for p in panels]
    for i, a in enumerate(places):
        assert a["x"] + a["w"] <= 24
        for b in places[:i]:
            apart = (
                a["x"] >= b["x"] + b["w"] or b["x"] >= a["x"] + a["w"]
                or a["y"] >= b["y"] + b["h"] or b["y"] >= a["y"] + a["h"]
            )  # fmt: skip
            assert apart, f"{a} covers {b}"


def test_metrics_of_dashboard_and_alerts_exist(build, tmp_path):
    """Every name that they ask for is one that a running daemon tells, or of a device that it has
    not: then the daemon must know the name."""
    flags = ["--kernel-monitor-reporting-interval-s=1"]
    asked = set().union(*map(names_in, expressions()))
    assert "sonde_processes" in asked and "cpu_util" in asked
    with Daemon(build, tmp_path, *flags, ipc=True) as d:
        url = f"http://localhost:{d.http_port}/metrics"

        def exported():
            text = urllib.request.urlopen(url, timeout=20).read().decode()
            names = set(re.findall(r"^([a-z_0-9]+)[{ ]", text, re.M))
            return names if {"rx_bytes_total", "cpu_util"} <= names else None

        names = wait_until(exported, "the first sample", 20)
    missing = asked - names
    known = "".join(p.read_text() for p in (ROOT / "src" / "daemon").rglob("*.c"))
    for name in missing:
        assert any(re.match(p, name) for p in ONLY_WITH.values()), name
        assert name == "up" or re.sub("_total$", "", name) in known, name


# --- Kubernetes ---


def paths(value, at=""):
    """Every leaf of a YAML or JSON value, as a path."""
    if isinstance(value, dict):
        for k, v in value.items():
            yield from paths(v, f"{at}.{k}")
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from paths(v, f"{at}[{i}]")
    else:
        yield at


@pytest.fixture
def daemonset():
    """The manifest as it is written: kubectl knows no types when it annotates."""
    needs("kubectl")
    manifest = PACKAGING / "kubernetes" / "daemonset.yaml"
    r = run("kubectl", "annotate", "--local", "-o", "json", "read=1", "-f", manifest)
    assert r.returncode == 0, r.stderr
    text, found = r.stdout.strip(), {}
    while text:
        value, end = json.JSONDecoder().raw_decode(text)
        del value["metadata"]["annotations"]["read"]
        found[value["kind"]] = value
        text = text[end:].strip()
    assert set(found) == {"Namespace", "DaemonSet"}
    return found["DaemonSet"]


def test_daemonset_has_only_known_fields(daemonset, tmp_path):
    """kubectl reads the manifest into its types and writes it again: what it does not know is
    gone then."""
    manifest = tmp_path / "daemonset.json"
    manifest.write_text(json.dumps(daemonset))
    r = run(
        "kubectl", "set", "image", "--local", "-o", "json", "daemon=sonde:test", "-f", manifest
    )  # fmt: skip
    assert r.returncode == 0, r.stderr
    theirs = json.loads(r.stdout)
    assert theirs["kind"] == "DaemonSet"
    assert not set(paths(daemonset)) - set(paths(theirs))


def test_daemonset_fits_the_daemon(build, daemonset):
    """Its options are ours, its ports are those of the options, its selector finds its pods."""
    spec = daemonset["spec"]
    template = spec["template"]
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    c = template["spec"]["containers"][0]
    ports = {p["name"]: p["containerPort"] for p in c["ports"]}
    assert f"--prometheus-port={ports['metrics']}" in c["args"]
    assert c["livenessProbe"]["httpGet"]["path"] == "/healthz"
    mounted = {m["name"] for m in c["volumeMounts"]}
    assert mounted == {v["name"] for v in template["spec"]["volumes"]}
    r = run(build / "bin" / "sonde", "daemon", *c["args"], "--port=none")
    assert r.returncode == 2 and "invalid value 'none' for '--port'" in r.stderr


# --- others ---


def test_logrotate(tmp_path):
    needs("logrotate")
    text = (PACKAGING / "logrotate" / "dynolog").read_text()
    log = tmp_path / "dynolog.log"
    log.write_text("line\n")
    text = text.replace("/var/log/dynolog.log", str(log)).replace("daily", "size 1")
    config = tmp_path / "config"
    config.write_text(text)
    config.chmod(0o644)
    r = run("logrotate", "-d", "-s", tmp_path / "state", config)
    assert r.returncode == 0 and "error" not in r.stderr, r.stderr


def test_slurm_scripts():
    r = run("sh", PACKAGING / "slurm" / "task_prolog.sh")
    assert re.findall(r"^export (\w+)=1$", r.stdout, re.M) == [
        "KINETO_USE_DAEMON",
        "MSMONITOR_USE_DAEMON",
    ]
    r = run("sh", "-n", PACKAGING / "slurm" / "prolog.sh")
    assert r.returncode == 0, r.stderr


def test_install_puts_them_in_place(build, tmp_path):
    """make install: the units name the programs where they were put."""
    words = ["make", "-C", ROOT, f"O={build}", f"DESTDIR={tmp_path}", "PREFIX=/opt/sonde"]
    r = run(*words, "install-packaging")
    assert r.returncode == 0, r.stderr
    share = tmp_path / "opt/sonde/share/sonde"
    unit = (tmp_path / "opt/sonde/lib/systemd/system/sonde-daemon.service").read_text()
    assert "ExecStart=/opt/sonde/bin/sonde daemon" in unit
    for f in ("prometheus/alerts.yml", "grafana/dashboard.json", "kubernetes/daemonset.yaml"):
        assert (share / f).exists()
    r = run(*words, "uninstall")
    assert r.returncode == 0, r.stderr
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]
