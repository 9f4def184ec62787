# SPDX-License-Identifier: MulanPSL-2.0
"""A real Prometheus scrapes the daemon, and its own checker reads /metrics."""

import contextlib
import json
import socket
import subprocess
import urllib.parse
import urllib.request

import pytest
from capabilities import needs
from daemon import Daemon, free_port
from fabric_client import Client
from waiting import wait_until

RECORD = {"kind": "Marker", "deviceId": 0, "duration": 5, "timestamp": 1730000000123456789}


def read(url):
    with urllib.request.urlopen(url, timeout=20) as r:
        return r.read().decode()


@pytest.fixture
def daemon(build, tmp_path):
    sim = {"LD_LIBRARY_PATH": str(build / "sim")}
    flags = ["--kernel-monitor-reporting-interval-s", "1", "--dcgm-reporting-interval-s", "1"]
    with Daemon(build, tmp_path, *flags, ipc=True, env=sim) as d:
        with Client(d.ipc_dir / "dynolog", bind=d.ipc_dir) as c:
            c.data({**RECORD, "domain": 'quo"te\\ new\nline ü'})
        yield d


def test_promtool_understands_every_line(daemon):
    needs("prometheus")
    url = f"http://localhost:{daemon.http_port}/metrics"

    def exported():
        text = read(url)
        return text if "cpu_util" in text and "npu_activity" in text else None

    text = wait_until(exported, lambda: read(url), 20)
    r = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    # 3: words about style, of names that are older than this daemon
    assert r.returncode in (0, 3), r.stderr
    assert "error while linting" not in r.stderr
    assert not [line for line in r.stderr.splitlines() if line.startswith("sonde_")], r.stderr


@contextlib.contextmanager
def prometheus(tmp_path, port):
    own = free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "scrape_configs:\n- job_name: sonde\n  scrape_interval: 300ms\n  scrape_timeout: 300ms\n"
        f"  static_configs: [{{targets: ['localhost:{port}']}}]\n"
    )
    words = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'db'}"]
    words += [f"--web.listen-address=127.0.0.1:{own}"]
    with open(tmp_path / "prometheus.log", "wb") as log:
        p = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{own}", p
    finally:
        p.kill()
        p.wait()


def test_prometheus_scrapes_it(daemon, tmp_path):
    needs("prometheus")
    with prometheus(tmp_path, daemon.http_port) as (url, process):
        log = tmp_path / "prometheus.log"

        def query(text, seconds=60):
            """Series once there are some."""

            def found():
                assert process.poll() is None, log.read_text()
                with contextlib.suppress(OSError):
                    q = urllib.parse.urlencode({"query": text})
                    return json.loads(read(f"{url}/api/v1/query?{q}"))["data"]["result"]

            return wait_until(found, lambda: log.read_text() + daemon.log(), seconds, 0.2)

        assert query('up{job="sonde"} == 1')
        (cpu,) = query("cpu_util")
        assert cpu["metric"]["host_name"] == socket.gethostname()
        (marker,) = query("npu_activity_duration_ns_total")
        assert marker["metric"]["domain"] == 'quo"te\\ new\nline ü' and marker["value"][1] == "5"
        assert query('rate(rx_bytes_total{net="lo"}[5s]) > 0')
        assert query("sonde_http_requests_total > 3")
        types = json.loads(read(f"{url}/api/v1/metadata?metric=rx_bytes_total"))["data"]
        assert types["rx_bytes_total"][0]["type"] == "counter"
