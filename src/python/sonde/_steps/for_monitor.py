# SPDX-License-Identifier: MulanPSL-2.0
"""Imported into a program that is monitored: its steps are detected from the moment on at which it
imports torch or mindspore."""

from msmemscope import _imports

from .. import _attribute, _monitor, _steps

for _name in ("torch", "mindspore"):
    _imports.when_imported(_name, lambda module: _steps.begin(_monitor, module))

_attribute.listen()
