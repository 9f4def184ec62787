# SPDX-License-Identifier: MulanPSL-2.0
"""Times of two runs, module by module: collect them, align the names of the two programs, compare.

    from putils.compare_perf import TimingCollector, compare_perf, dump_compare_perf_snapshot

    collector = TimingCollector()
    with compare_perf("train.step", collector=collector, threshold_seconds=0.05):
        train(batch)
    dump_compare_perf_snapshot(collector=collector, output_dir="logs", step=1, tag="baseline")

Two such files are compared by ``python -m putils.compare_perf diff --baseline A --target B``.
"""

from .align import AlignmentMappingCache, align_modules
from .collector import TimingCollector, TimingEvent, compare_perf, measure_overhead
from .config import (
    DEFAULT_SYNC_MODE,
    SUPPORTED_SYNC_MODES,
    ComparePerfTimingConfig,
    validate_sync_mode,
)
from .diff import compute_diff
from .hooks import model_forward_timing, register_model_hooks
from .schema import (
    SCHEMA_VERSION,
    SchemaValidationError,
    build_schema,
    parse_schema,
    validate_schema,
)
from .snapshot import dump_compare_perf_snapshot

__all__ = [
    "AlignmentMappingCache",
    "ComparePerfTimingConfig",
    "DEFAULT_SYNC_MODE",
    "SCHEMA_VERSION",
    "SUPPORTED_SYNC_MODES",
    "SchemaValidationError",
    "TimingCollector",
    "TimingEvent",
    "align_modules",
    "build_schema",
    "compare_perf",
    "compute_diff",
    "dump_compare_perf_snapshot",
    "measure_overhead",
    "model_forward_timing",
    "parse_schema",
    "register_model_hooks",
    "validate_schema",
    "validate_sync_mode",
]
