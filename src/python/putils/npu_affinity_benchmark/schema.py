# SPDX-License-Identifier: MulanPSL-2.0
"""raw_results.json, version 1.

    >>> build_schema({}, {}, [], [], {"throughput": [], "latency_p95_ms": []}, [], [])["schema_version"]
    1
"""

from typing import Any, Dict, List, Mapping

SCHEMA_VERSION = 1
SUPPORTED_SCHEMA_VERSIONS = (SCHEMA_VERSION,)
REQUIRED_TOP_LEVEL_SECTIONS = (
    "run_metadata",
    "topology",
    "candidates",
    "results",
    "leaderboards",
    "failures",
    "remeasure_events",
)
REQUIRED_OF_RESULT = (
    "npu_id",
    "candidate_id",
    "requested_affinity",
    "effective_affinity",
    "samples",
)
OBJECTS = ("run_metadata", "topology", "leaderboards")


class SchemaValidationError(ValueError):
    """The payload is not one of ours, or of a version that is not known here."""


def build_schema(
    run_metadata: Mapping[str, Any],
    topology: Mapping[str, Any],
    candidates: List[Any],
    results: List[Any],
    leaderboards: Mapping[str, Any],
    failures: List[Any],
    remeasure_events: List[Any],
) -> Dict[str, Any]:
    """The payload of a file.

    >>> payload = build_schema(run_metadata, topology, candidates, [], boards, [], [])
    """
    sections = (
        run_metadata, topology, candidates, results, leaderboards, failures, remeasure_events,
    )  # fmt: skip
    return {"schema_version": SCHEMA_VERSION, **dict(zip(REQUIRED_TOP_LEVEL_SECTIONS, sections))}


def validate_schema(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The payload itself; SchemaValidationError says what is missing.

    >>> validate_schema({"schema_version": 1})
    Traceback (most recent call last):
    putils...SchemaValidationError: Missing required field: run_metadata
    """
    if not isinstance(payload, Mapping):
        raise SchemaValidationError("Invalid payload: expected an object")
    if "schema_version" not in payload:
        raise SchemaValidationError("Missing required field: schema_version")
    version = payload["schema_version"]
    if isinstance(version, bool) or version not in SUPPORTED_SCHEMA_VERSIONS:
        raise SchemaValidationError(
            f"Incompatible schema_version: expected one of [{SCHEMA_VERSION}], got {version}"
        )
    for name in REQUIRED_TOP_LEVEL_SECTIONS:
        if name not in payload:
            raise SchemaValidationError(f"Missing required field: {name}")
        if not isinstance(payload[name], Mapping if name in OBJECTS else list):
            raise SchemaValidationError(f"Invalid field: {name}")
    for i, result in enumerate(payload["results"]):
        for name in REQUIRED_OF_RESULT:
            if not isinstance(result, Mapping) or name not in result:
                raise SchemaValidationError(f"Missing required field: results[{i}].{name}")
    return payload


def parse_schema(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """validate_schema() under the name that readers use.

    >>> parse_schema(json.load(open("raw_results.json")))["leaderboards"]
    """
    return validate_schema(payload)
