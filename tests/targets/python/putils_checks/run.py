#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Checks of the package putils in one process, since importing torch takes seconds.

usage: run.py [--device cpu|cuda] [--only NAME]...

A check is a function check_*(here) of the modules below: `here` has torch, the device, a folder of
its own, and what the check has printed so far. The last line of the output is a JSON object with
"ok", or what went wrong, for each check.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import traceback

import torch

import accuracy_checks
import device_checks
import other_checks
import tensor_checks

MODULES = (tensor_checks, device_checks, accuracy_checks, other_checks)


class Here:
    def __init__(self, device, tmp):
        self.torch, self.device, self.tmp = torch, device, pathlib.Path(tmp)
        self.out, self.err = io.StringIO(), io.StringIO()

    def said(self):
        """What was printed since it was asked last."""
        text = self.out.getvalue()
        self.out.seek(0)
        self.out.truncate()
        return text

    def warned(self):
        text = self.err.getvalue()
        self.err.seek(0)
        self.err.truncate()
        return text

    def lines(self):
        return self.said().splitlines()

    @contextlib.contextmanager
    def env(self, **values):
        before = {k: os.environ.get(k) for k in values}
        for k, v in values.items():
            os.environ.pop(k, None)
            if v is not None:
                os.environ[k] = str(v)
        try:
            yield
        finally:
            for k, v in before.items():
                os.environ.pop(k, None)
                if v is not None:
                    os.environ[k] = v

    def tensor(self, *args, **kw):
        return torch.tensor(*args, device=self.device, **kw)


def run(check, device, tmp):
    here = Here(device, tmp)
    os.makedirs(tmp)
    os.chdir(tmp)
    with contextlib.redirect_stdout(here.out), contextlib.redirect_stderr(here.err):
        try:
            check(here)
            return "ok"
        except Exception:
            return traceback.format_exc() + here.out.getvalue()[-2000:] + here.err.getvalue()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", action="append")
    args = parser.parse_args()
    found = {}
    top = tempfile.mkdtemp(dir=os.getcwd())
    for module in MODULES:
        for name, check in list(vars(module).items()):
            if name.startswith("check_") and (not args.only or name in args.only):
                found[name] = run(check, args.device, os.path.join(top, name))
    os.chdir("/")
    print(json.dumps(found))
    return 0 if all(v == "ok" for v in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
