# SPDX-License-Identifier: MulanPSL-2.0
"""Which processors feed a device fastest: measured, where a virtual machine hides how they are
attached.

    python -m putils.npu_affinity_benchmark --profile medium --output-dir out
    python -m putils.npu_affinity_benchmark --dry-run-topology --output-dir out

Each visible NPU or GPU (without one, the processor itself) runs the same small products and copies
while the host side is bound to one list of processors after the other. Two leaderboards come out:
products per second, and the 95th percentile of the latency. Files: raw_results.json, report.xlsx,
benchmark.log.
"""

from .binding import (
    AFFINITY_BIND_STATUS_ERROR,
    AFFINITY_BIND_STATUS_MISMATCH,
    AFFINITY_BIND_STATUS_OK,
    AFFINITY_FAILURE_CODE_EINVAL,
    AFFINITY_FAILURE_CODE_EPERM,
    AFFINITY_FAILURE_CODE_OTHER,
    AFFINITY_FAILURE_CODE_TIMEOUT,
    BIND_RETRY_DELAYS_S,
    bind_with_retries,
    classify_affinity_failure,
    mark_result_invalid_for_ranking_on_mismatch,
    request_set_readback_affinity,
)
from .candidates import PROFILE_CANDIDATE_LIMITS, discover_topology, generate_candidate_cpu_lists
from .run import leaderboards, main, run_benchmark, run_dry_run_topology
from .schema import (
    REQUIRED_TOP_LEVEL_SECTIONS,
    SCHEMA_VERSION,
    SUPPORTED_SCHEMA_VERSIONS,
    SchemaValidationError,
    build_schema,
    parse_schema,
    validate_schema,
)
from .workload import (
    DEFAULT_BASELINE_DEVIATION_RATIO,
    DEFAULT_MAX_REMEASURE_ATTEMPTS,
    DEFAULT_WORKLOAD_SEED,
    REMEASURE_DECISION_ACCEPTED,
    REMEASURE_DECISION_UNSTABLE,
    WORKLOAD_PROFILE_CONFIG,
    evaluate_baseline_remeasure,
    run_mixed_workload,
)

__all__ = [name for name in dir() if not name.startswith("_")]
