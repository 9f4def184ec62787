# SPDX-License-Identifier: MulanPSL-2.0
"""A real browser, for tests of pages and pictures."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time

from capabilities import needs
from waiting import wait_until


class Browser:
    """Chromium without a window, spoken to through its debugging pipe: JSON ended by NUL."""

    def __init__(self, tmp_path):
        program = needs("chromium")
        # it puts a socket there: the path must be short
        self.tmp = tempfile.TemporaryDirectory(prefix="sonde_web_", ignore_cleanup_errors=True)
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()

        def descriptors():
            a, b = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(a, 3)
            os.dup2(b, 4)

        words = [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        words += ["--no-first-run", f"--user-data-dir={tmp_path / 'profile'}", "about:blank"]
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=descriptors, close_fds=False, start_new_session=True,
            env={**os.environ, "HOME": str(tmp_path), "TMPDIR": self.tmp.name},
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self.buffer, self.number, self.session, self.events = b"", 0, None, []
        try:
            self.attach()
        except BaseException:
            self.__exit__()
            raise

    def attach(self):
        """Speaks to the first page from now on."""
        page = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attach = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.session = attach["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.out)
        os.close(self.into)
        os.killpg(self.process.pid, signal.SIGKILL)  # with the processes of its pages
        self.process.wait()
        self.tmp.cleanup()

    def message(self, seconds=60):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            left = max(0, end - time.monotonic())
            assert select.select([self.into], [], [], left)[0], "the browser does not answer"
            part = os.read(self.into, 1 << 20)
            assert part, "the browser has ended"
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(text)

    def ask(self, method, **params):
        self.number += 1
        m = {"id": self.number, "method": method, "params": params}
        if self.session:
            m["sessionId"] = self.session
        os.write(self.out, json.dumps(m).encode() + b"\0")
        while True:
            reply = self.message()
            if reply.get("id") == self.number:
                assert "error" not in reply, reply
                return reply["result"]
            self.events.append(reply)

    def js(self, expression):
        r = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in r, r
        return r["result"].get("value")

    def until(self, expression, seconds=30):
        text = lambda: f"{expression} in {self.js('document.body.innerText')}"
        return wait_until(lambda: self.js(expression), text, seconds, 0.05)
