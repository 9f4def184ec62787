# SPDX-License-Identifier: MulanPSL-2.0
"""Metrics from their sources to every sink. Receivers may be slow or gone: nobody waits."""

import calendar
import contextlib
import fcntl
import http.server
import json
import os
import pathlib
import pty
import re
import resource
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.request

import pytest
from capabilities import lacks, needs
from daemon import Daemon
from fabric_client import Client
from waiting import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAST = ["--kernel-monitor-reporting-interval-s", "1"]


def scrape(d):
    """Series of /metrics: name and labels without host_name, to value."""
    with urllib.request.urlopen(f"http://localhost:{d.http_port}/metrics", timeout=20) as r:
        text = r.read().decode()
    series = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            assert name not in series, name
            series[re.sub(r',?host_name="[^"]*"', "", name).replace("{}", "")] = float(value)
    return series


def send(d, *records):
    with Client(d.ipc_dir / "dynolog", bind=d.ipc_dir) as c:
        for record in records:
            c.data(record)


def data(kind="Kernel", device=0, duration=5, timestamp=1730000000123456789, **more):
    return {"kind": kind, "deviceId": device, "duration": duration, "timestamp": timestamp, **more}


# --- names and values ---


def test_the_names_of_the_kernel(build, tmp_path):
    with Daemon(build, tmp_path, *FAST) as d:
        s = wait_until(lambda: (lambda x: "cpu_util" in x and x)(scrape(d)))
        names = {n.split("{")[0] for n in s}
        assert names >= set(
            "uptime cpu_u cpu_s cpu_i cpu_util cpu_u_ms cpu_s_ms cpu_w_ms cpu_n_ms cpu_x_ms "
            "cpu_y_ms cpu_z_ms rx_bytes rx_packets rx_errors rx_drops tx_bytes tx_packets "
            "tx_errors tx_drops rx_bytes_total mem_total mem_used sonde_processes sonde_jobs "
            "sonde_rpc_calls_total sonde_build_info sonde_start_time_seconds "
            "sonde_dropped_total sonde_source_up".split()
        )
        assert 'rx_bytes{net="lo"}' in s and s['sonde_source_up{source="kernel"}'] == 1
        assert 0 <= s["cpu_util"] <= 100.01
        first = s['rx_bytes_total{net="lo"}']
        for _ in range(50):
            d.call({"fn": "getDaemon"})
        wait_until(lambda: scrape(d)['rx_bytes_total{net="lo"}'] > first)
        latest = d.call({"fn": "getMetrics"})
        kernel = next(x for x in latest["samples"] if x["source"] == "kernel")
        assert kernel["metrics"]["uptime"] > 0 and "device" not in kernel
        assert {"name": "kernel", "state": "works"} in latest["sources"]


def test_records_of_monitors(build, tmp_path):
    with Daemon(build, tmp_path, "--use-JSON", ipc=True) as d:
        send(
            d,
            data(duration=5),
            data(duration=7),
            data(device="1"),
            data("API", -1),
            data("API", "18446744073709551615"),
            data("API", 4294967295),
            data("Marker", 0, domain='a"b\\c\nd', name="step 1"),
            data("Marker", 0, domain='a"b\\c\nd', name="step 2"),
        )
        total = "npu_activity_duration_ns_total"
        s = wait_until(lambda: (lambda x: any("Marker" in n for n in x) and x)(scrape(d)))
        assert s[total + '{device="0",kind="Kernel"}'] == 12
        assert s[total + '{device="1",kind="Kernel"}'] == 5
        assert s[total + '{device="host",kind="API"}'] == 15
        assert s['npu_activity_records_total{device="host",kind="API"}'] == 3
        assert s['duration{deviceId="0",kind="Kernel"}'] == 7
        label = r'device="0",kind="Marker",domain="a\"b\\c\nd"'
        wait_until(lambda: scrape(d)[f"{total}{{{label}}}"] == 10)
        # the name of a marker is no label
        assert not any("step" in n for n in s)
        line = d.wait_log(r'time = (\S+) data = (.*"step 2".*)')
        assert line.group(1) == "2024-10-27T03:33:20.123Z"
        assert json.loads(line.group(2)) == {
            "deviceId": "0", "domain": 'a"b\\c\nd', "duration": 5, "kind": "Marker",
            "name": "step 2", "timestamp": 1730000000123456789,
        }  # fmt: skip


def test_records_that_are_none(build, tmp_path):
    good = data()
    bad = [
        {},
        {k: v for k, v in good.items() if k != "kind"},
        {k: v for k, v in good.items() if k != "deviceId"},
        {**good, "kind": 5},
        {**good, "kind": ""},
        {**good, "kind": "x" * 300},
        {**good, "kind": "a\0b"},
        {**good, "deviceId": "../../etc"},
        {**good, "deviceId": " 1"},
        {**good, "deviceId": ""},
        {**good, "deviceId": -2},
        {**good, "deviceId": 70000},
        {**good, "deviceId": 0.5},
        {**good, "deviceId": [0]},
        {**good, "duration": -1},
        {**good, "duration": "5"},
        {**good, "duration": 1.5},
        {**good, "timestamp": None},
    ]
    with Daemon(build, tmp_path, "--metric-log-dir", tmp_path / "tb", ipc=True) as d:
        send(d, *bad, good)
        kernel = 'npu_activity_records_total{device="0",kind="Kernel"}'
        s = wait_until(lambda: (lambda x: kernel in x and x)(scrape(d)))
        assert s[kernel] == 1
        dropped = {n: v for n, v in s.items() if n.startswith("sonde_dropped_total")}
        assert sum(dropped.values()) == len(bad)
        assert dropped['sonde_dropped_total{reason="bad_data_record"}'] >= len(bad) - 1
        wait_until(lambda: (tmp_path / "tb" / "device_0").exists())
        assert {p.name for p in (tmp_path / "tb").iterdir()} <= {"device_0", "device_host"}


def test_series_are_bounded(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        send(d, *(data("Marker", 0, domain=f"domain {i}") for i in range(1500)))
        refused = 'sonde_dropped_total{reason="too_many_series"}'
        s = wait_until(lambda: (lambda x: x[refused] > 400 and x)(scrape(d)))
        assert sum("npu_activity_records" in n for n in s) <= 512


# --- JSON log ---


def test_json_log(build, tmp_path):
    with Daemon(build, tmp_path, *FAST, "--use_JSON", env={"TZ": "Asia/Tokyo"}) as d:
        m = d.wait_log(r"Logging : (\d+) values\n.*time = (\S+) data = (\{.*cpu_util.*\})")
        values = json.loads(m.group(3))
        assert len(values) == int(m.group(1)) and list(values) == sorted(values)
        assert re.fullmatch(r"\d+\.\d{3}", values["cpu_util"]) and isinstance(values["uptime"], int)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", m.group(2))
        when = calendar.timegm(time.strptime(m.group(2)[:19], "%Y-%m-%dT%H:%M:%S"))
        assert abs(time.time() - when) < 60


# --- TensorBoard, read by hand ---


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(message):
    """Number and value of each field of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        assert at + size <= len(message)
        yield key >> 3, message[at : at + size]
        at += size


def events(path):
    """Version, and (time, step, tag, value) of every record; every byte is accounted for."""
    bytes_, at, out, version = path.read_bytes(), 0, [], None
    while at < len(bytes_):
        head = bytes_[at : at + 8]
        (size,), (crc,) = struct.unpack("<Q", head), struct.unpack_from("<I", bytes_, at + 8)
        assert crc == masked(head)
        body = bytes_[at + 12 : at + 12 + size]
        (crc,) = struct.unpack_from("<I", bytes_, at + 12 + size)
        assert len(body) == size and crc == masked(body)
        at += 16 + size
        event = dict(fields(body))
        (when,) = struct.unpack("<d", event[1])
        if 3 in event:
            version = event[3].decode()
            continue
        ((number, value),) = fields(event[5])
        assert number == 1
        value = dict(fields(value))
        out.append((when, event.get(2, 0), value[1].decode(), struct.unpack("<f", value[2])[0]))
    return version, out


def test_crc():
    assert crc32c(b"123456789") == 0xE3069283


def test_tensorboard(build, tmp_path):
    tb = tmp_path / "a" / "tb"
    flags = ["--metric_log_dir", tb, *FAST]
    records = [
        data(duration=100, timestamp=1730000000500000000),
        data(duration=200),
        data("Communication", 0, 7),
        data("Marker", 0, 9, domain="default", name="x"),
        data("Marker", -1, 10, domain="d"),
        data("Kernel", 1, 300),
    ]
    with Daemon(build, tmp_path, *flags, ipc=True) as d:
        send(d, *records)
        done = 'sonde_sink_records_total{sink="tensorboard"}'
        wait_until(lambda: (tb / "device_1" / "tfevents.pb").exists() and scrape(d)[done] > 30)
        d.process.kill()  # whatever was written must be readable
        d.process.wait()
    version, first = events(tb / "device_0" / "tfevents.pb")
    assert version == "brain.Event:2"
    kernels = [e[1:] for e in first if e[2] == "Kernel"]
    assert kernels == [(0, "Kernel", 100.0), (1, "Kernel", 200.0)]
    assert first[0][0] == 1730000000.5
    assert (0, "Communication", 7.0) in [e[1:] for e in first]
    assert (0, "Marker/default", 9.0) in [e[1:] for e in first]
    host = events(tb / "device_host" / "tfevents.pb")[1]
    assert (0, "Marker/d", 10.0) in [e[1:] for e in host]
    assert {"kernel/uptime", "kernel/cpu_util", "kernel/rx_bytes.lo"} <= {e[2] for e in host}
    assert events(tb / "device_1" / "tfevents.pb")[1][0][3] == 300.0

    before = (tb / "device_0" / "tfevents.pb").read_bytes()
    with Daemon(build, tmp_path, *flags, ipc=True) as d:
        send(d, data(duration=1))
        wait_until(lambda: len(list((tb / "device_0").iterdir())) == 2)
        assert d.stop() == 0
    old, new = sorted((tb / "device_0").iterdir())
    assert old.name == "tfevents.pb" and new.name.startswith("tfevents.pb.")
    assert old.read_bytes() == before and events(new)[1][0][1:] == (0, "Kernel", 1.0)


def test_tensorboard_files_that_are_large_or_gone(build, tmp_path):
    tb = tmp_path / "tb"
    names = lambda: sorted(p.name for p in (tb / "device_0").glob("*"))
    with Daemon(build, tmp_path, "--metric-log-dir", tb, ipc=True) as d:
        send(d, data(duration=1))
        wait_until(names)
        first = tb / "device_0" / "tfevents.pb"
        wait_until(lambda: len(events(first)[1]) == 1)
        with open(first, "r+b") as f:
            f.truncate(64 << 20)  # a hole: it takes no space
        send(d, data(duration=2))
        wait_until(lambda: len(names()) == 2)
        second = tb / "device_0" / names()[1]
        assert second.name.startswith("tfevents.pb.")
        wait_until(lambda: [e[1:] for e in events(second)[1]] == [(1, "Kernel", 2.0)])
        d.wait_log(f"go on in '{second}': the file before it has 64 MiB")
        assert first.stat().st_size == 64 << 20

        shutil.rmtree(tb)
        send(d, data(duration=3))
        wait_until(lambda: first.exists() and [e[1:] for e in events(first)[1]] == [(2, "Kernel", 3.0)])
        d.wait_log(f"go on in '{first}': the file before it was removed")


def test_tensorboard_with_devices_that_somebody_invents(build, tmp_path):
    tb = tmp_path / "tb"
    with Daemon(build, tmp_path, "--metric-log-dir", tb, ipc=True) as d:
        send(d, data(device=0, duration=1))
        send(d, *(data(device=1000 + i) for i in range(300)), data(device=0, duration=2))
        known = lambda: events(tb / "device_0" / "tfevents.pb")[1]
        wait_until(lambda: (tb / "device_0" / "tfevents.pb").exists() and len(known()) == 2)
        wait_until(lambda: scrape(d)['sonde_sink_dropped_total{sink="tensorboard"}'] >= 40)
        wait_until(lambda: 250 <= scrape(d)['sonde_sink_records_total{sink="tensorboard"}'] < 1000)
        assert len(list(tb.iterdir())) <= 256
        assert d.log().count("more than 256 devices") == 1


def test_tensorboard_on_a_full_disk(build, tmp_path):
    """A daemon that may write no file larger than 64 KiB: whole records only, and others go on."""
    tb = tmp_path / "tb"
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
    with Daemon(build, tmp_path, "--metric-log-dir", tb, ipc=True, preexec_fn=limit) as d:
        send(d, *(data(duration=i, kind="Kernel" * 10) for i in range(1000)))
        d.wait_log("cannot deliver metrics to TensorBoard files: cannot write an event file")
        assert d.call({"fn": "getVersion"})
    assert d.process.returncode == 0
    assert len(events(tb / "device_0" / "tfevents.pb")[1]) > 100


LOAD_SCALARS = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1])
a.Reload()
print([s.value for s in a.Scalars("Kernel")])
"""


def tensorboard_python():
    """An interpreter that has the package: this one, or that of `./bootstrap test`."""
    for python in (sys.executable, ROOT / "build" / "tensorboard" / "bin" / "python"):
        words = [python, "-c", "import tensorboard"]
        try:
            if subprocess.run(words, capture_output=True, timeout=60).returncode == 0:
                return python
        except OSError:
            pass
    lacks("tensorboard", "./bootstrap test installs it")


def test_tensorboard_reads_it(build, tmp_path):
    python = tensorboard_python()
    with Daemon(build, tmp_path, "--metric-log-dir", tmp_path / "tb", ipc=True) as d:
        send(d, data(duration=100), data(duration=200))
        wait_until(lambda: (tmp_path / "tb" / "device_0" / "tfevents.pb").exists())
        assert d.stop() == 0
    words = [python, "-c", LOAD_SCALARS, tmp_path / "tb" / "device_0"]
    r = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert r.stdout.strip() == "[100.0, 200.0]", r.stderr


def test_a_directory_that_cannot_be_written(build, tmp_path):
    (tmp_path / "file").write_text("")
    flags = ["--metric-log-dir", tmp_path / "file" / "tb"]
    with Daemon(build, tmp_path, *flags, wait=False) as d:
        assert d.process.wait(20) != 0
        assert "tensorboard" in d.log() and str(tmp_path / "file") in d.log()


# --- OTLP ---


class Collector:
    """Takes requests; `answer` gives the status of each."""

    def __init__(self, answer=lambda n: 200, tls=None):
        self.got = got = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                got.append((self.path, dict(self.headers), body))
                self.send_response(answer(len(got)))
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def metrics(self):
        """name -> list of (kind, data, point)"""
        out = {}
        for _, _, body in list(self.got):
            for r in json.loads(body)["resourceMetrics"]:
                for m in r["scopeMetrics"][0]["metrics"]:
                    kind = "sum" if "sum" in m else "gauge"
                    for p in m[kind]["dataPoints"]:
                        out.setdefault(m["name"], []).append((m, m[kind], p))
        return out


def attributes(point):
    return {a["key"]: a["value"]["stringValue"] for a in point["attributes"]}


def test_otlp(build, tmp_path):
    with Collector() as c:
        flags = ["--use-otlp", "--otlp-endpoint", f"http://localhost:{c.port}", *FAST]
        flags += ["--otlp-headers", "X-Token=abc=d,X-Two=2", "--otlp-service-name", "mine"]
        with Daemon(build, tmp_path, *flags, ipc=True) as d:
            send(d, data("Marker", 3, duration=42, domain="d", name="n"))
            later = 1730000000123456789 + 1000
            send(d, data("Kernel", 3, timestamp=later))
            send(d, data("Marker", 3, timestamp=later, domain="d"))
            wait_until(lambda: "cpu_util" in c.metrics() and len(c.metrics().get("duration", [])) == 3)
            found = c.metrics()
            assert scrape(d)['sonde_sink_dropped_total{sink="otlp"}'] == 0
        path, headers, body = c.got[0]
        assert path == "/v1/metrics" and headers["Content-Type"] == "application/json"
        assert headers["X-Token"] == "abc=d" and headers["X-Two"] == "2"
        who = json.loads(body)["resourceMetrics"][0]["resource"]
        assert attributes(who)["service.name"] == "mine" and attributes(who)["host.name"]
        m, _, point = found["cpu_util"][0]
        assert m["unit"] == "1" and 0 <= point["asDouble"] <= 1.001
        m, data_, point = found["rx_bytes"][0]
        assert m["unit"] == "By" and data_["aggregationTemporality"] == 1 and data_["isMonotonic"]
        assert int(point["startTimeUnixNano"]) <= int(point["timeUnixNano"])
        assert "net" in attributes(point)
        m, _, point = found["duration"][0]
        assert point["asDouble"] == 42 and point["timeUnixNano"] == "1730000000123456789"
        assert attributes(point) == {"device": "3", "kind": "Marker", "domain": "d"}
        # what another kind reported meanwhile does not shorten the interval of this one
        assert found["duration"][2][2]["startTimeUnixNano"] == "1730000000123456789"


def test_otlp_tries_again(build, tmp_path):
    with Collector(lambda n: 503 if n == 1 else 200) as c:
        flags = ["--use-otlp", "--otlp-endpoint", f"http://127.0.0.1:{c.port}/v1/metrics/"]
        with Daemon(build, tmp_path, *flags) as d:
            wait_until(lambda: len(c.got) >= 2)
            assert c.got[0][0] == c.got[1][0] == "/v1/metrics" and c.got[0][2] == c.got[1][2]
            wait_until(lambda: scrape(d)['sonde_sink_records_total{sink="otlp"}'] >= 1)
            assert scrape(d)['sonde_sink_dropped_total{sink="otlp"}'] == 0
        assert "503" in d.log() and "again" in d.log()


def test_otlp_with_an_encrypted_key(build, tmp_path):
    """There is nobody to ask for its password, at the start or at a reload."""
    needs("openssl")
    key, out = tmp_path / "k.pem", tmp_path / "c.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-keyout", key, "-out", out]
    words += ["-passout", "pass:secret", "-subj", "/CN=x"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    flags = ["--use-otlp", "--otlp-endpoint", "https://localhost:1"]
    flags += ["--otlp-ssl-client-cert-path", out, "--otlp-ssl-client-key-path", key]
    parent, child = pty.openpty()

    def terminal():
        os.setsid()
        fcntl.ioctl(child, termios.TIOCSCTTY, 0)

    with Daemon(build, tmp_path, *flags, wait=False, preexec_fn=terminal, pass_fds=[child]) as d:
        assert d.process.wait(20) != 0
        assert "encrypted" in d.log() and str(key) in d.log()
    os.close(parent)
    os.close(child)


def test_otlp_over_tls(build, tmp_path):
    certs = tmp_path / "certs"
    words = [build / "bin" / "sonde", "certs", "--out", certs, "--key-type", "ec", "localhost"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certs / "client" / "ca.crt")
    server = certs / "server-localhost"
    tls.load_cert_chain(server / "server.crt", server / "server.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    with Collector(tls=tls) as c:
        flags = ["--use-otlp", "--otlp-endpoint", f"https://localhost:{c.port}"]
        own = ["--otlp-ssl-client-cert-path", certs / "client" / "client.crt"]
        own += ["--otlp-ssl-client-key-path", certs / "client" / "client.key"]
        own += ["--otlp-ssl-ca-cert-path", certs / "client" / "ca.crt"]
        with Daemon(build, tmp_path, *flags, *own):
            wait_until(lambda: c.got)
        n = len(c.got)
        with Daemon(build, tmp_path, *flags) as d:  # an authority that nobody knows
            d.wait_log(r"cannot deliver .*certificate")
        assert len(c.got) == n


@contextlib.contextmanager
def unreachable():
    """A port on which connecting hangs: its queue is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as s, contextlib.ExitStack() as stack:
        for _ in range(4):
            c = stack.enter_context(socket.socket())
            c.setblocking(False)
            c.connect_ex(s.getsockname())
        yield s.getsockname()[1]


def test_a_reload_waits_for_no_receiver_and_no_driver(build, tmp_path):
    """All of them hang while the old metrics end. Clients of the fabric give up after 50 ms."""
    (tmp_path / "npu-smi").write_text("#!/bin/sh\nexec sleep 20\n")
    (tmp_path / "npu-smi").chmod(0o755)
    flags = tmp_path / "flags"
    with socket.create_server(("127.0.0.1", 0)) as silent, unreachable() as port:
        words = ["--use-otlp", "--otlp-endpoint", f"http://127.0.0.1:{silent.getsockname()[1]}"]
        words += ["--use-fbrelay", "--fbrelay-port", port, "--enable-npu-monitor"]
        flags.write_text("--kernel-monitor-reporting-interval-s=60\n")
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        with Daemon(build, tmp_path, *words, "--flagfile", flags, ipc=True, env=env) as d:
            send(d, *(data(duration=i) for i in range(10)))
            silent.settimeout(20)
            peer, _ = silent.accept()
            with contextlib.closing(peer), Client(d.ipc_dir / "dynolog", bind=d.ipc_dir) as c:
                longest = []
                for i in range(3):
                    flags.write_text(f"--kernel-monitor-reporting-interval-s={61 + i}\n")
                    d.reload()
                    worst, end = 0, time.monotonic() + 20
                    while d.log().count("reloaded") <= i:
                        start = time.monotonic()
                        assert c.request() == "" and start < end
                        worst = max(worst, time.monotonic() - start)
                    longest.append(worst)
                # to wait would be a second for each of them, every time
                assert min(longest) < 0.9, longest
                start = time.monotonic()
                assert d.stop(30) == 0
                assert time.monotonic() - start < 15


def test_receivers_that_do_not_answer(build, tmp_path):
    """One that takes connections and is silent, one that is gone: the queue stays bounded, others
    are served, and the end does not wait."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))
        flags = ["--use-otlp", "--otlp-endpoint", f"http://127.0.0.1:{silent.getsockname()[1]}"]
        flags += ["--otlp-max-queue-size", "10", "--otlp-timeout-ms", "60000"]
        flags += ["--use-fbrelay", "--fbrelay-port", gone.getsockname()[1]]
        with Daemon(build, tmp_path, *flags, ipc=True) as d:
            send(d, *(data(duration=i) for i in range(300)))
            dropped = 'sonde_sink_dropped_total{sink="%s"}'
            wait_until(lambda: scrape(d)[dropped % "otlp"] >= 200)
            wait_until(lambda: scrape(d)[dropped % "fbrelay"] >= 1)
            assert d.call({"fn": "getVersion"})
            start = time.monotonic()
            assert d.stop(30) == 0
            assert time.monotonic() - start < 15


@pytest.mark.parametrize(
    "flags",
    [
        ["--otlp-endpoint", "localhost:4318"],
        ["--otlp-endpoint", "http://"],
        ["--otlp-endpoint", "http://a b/"],
        ["--otlp-endpoint", "http://host:99999"],
        ["--otlp-headers", "no value"],
        ["--otlp-headers", "a: b=c"],
        ["--otlp-endpoint", "https://localhost", "--otlp-ssl-ca-cert-path", "/none"],
    ],
)
def test_otlp_options_that_make_no_sense(build, tmp_path, flags):
    with Daemon(build, tmp_path, "--use-otlp", *flags, wait=False) as d:
        assert d.process.wait(20) != 0
        assert "otlp" in d.log() and flags[-1] in d.log()


# --- relay ---


def test_relay(build, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        flags = ["--use-fbrelay", "--fbrelay-port", server.getsockname()[1]]
        with Daemon(build, tmp_path, *flags, ipc=True) as d:
            send(d, data(device=2, duration=8))
            server.settimeout(20)
            peer, _ = server.accept()
            with contextlib.closing(peer):
                peer.settimeout(20)
                text, found = "", {}
                while "dyno.device2" not in found or "dyno" not in found:
                    text += peer.recv(65536).decode()
                    with contextlib.suppress(json.JSONDecodeError):
                        while text:
                            record, at = json.JSONDecoder().raw_decode(text)
                            found[record["event.module"]] = record
                            text = text[at:]
    record = found["dyno.device2"]
    assert record["dyno.device2"]["duration"] == 8 and record["backend"] == 0
    assert record["stack_metrics"] is False and record["@timestamp"].startswith("2024-10-27T")
    assert found["dyno"]["dyno"]["uptime"] > 0
