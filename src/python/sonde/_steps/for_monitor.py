# SPDX-License-Identifier: MulanPSL-2.0
"""Imported into a program that is monitored: its steps are detected from the moment on at which it
imports torch."""

from msmemscope import _imports

from .. import _monitor, _steps

_imports.when_imported("torch", lambda torch: _steps.begin(_monitor, torch))
