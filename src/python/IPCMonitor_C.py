# SPDX-License-Identifier: MulanPSL-2.0
"""The name of the library below IPCMonitor, for programs that go past it."""

import sys as _sys

from msmonitor import PyDynamicMonitorProxy as _Proxy
from msmonitor import _library as monitor

_proxy = _Proxy()
init_dyno = _proxy.init_dyno
poll_dyno = _proxy.poll_dyno
enable_dyno_npu_monitor = _proxy.enable_dyno_npu_monitor
finalize_dyno = _proxy.finalize_dyno
update_profiler_status = _proxy.update_profiler_status
set_cluster_config_data = _proxy.set_cluster_config_data

_sys.modules[__name__ + ".monitor"] = monitor
