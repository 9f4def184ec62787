# SPDX-License-Identifier: MulanPSL-2.0
"""Which device steps, marks and operators without tensors belong to, where no NPU runtime knows.

Rows without a device stand in the files of every device; a job that has none would lose them.
"""

import sys

from sonde import _sonde

_settings = None


def wanted(settings):
    return True


def enable(settings):
    global _settings
    _settings = settings
    before_step()


def disable():
    global _settings
    _settings = None


def before_step():
    _sonde.set_device(_current())


def _current():
    """The GPU that this process uses; else the CPU, if it is recorded."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return cuda.current_device()
    return _sonde.DEV_HOST if _settings["cpu"] else _sonde.DEV_NONE
