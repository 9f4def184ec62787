# SPDX-License-Identifier: MulanPSL-2.0
"""The file that a run leaves, version 1: events, run_metadata, alignment, summary.

    >>> build_schema(events=[], run_metadata={}, alignment={}, summary={})["schema_version"]
    1
"""

from typing import Any, Dict, List, Mapping

SCHEMA_VERSION = 1
SUPPORTED_SCHEMA_VERSIONS = (SCHEMA_VERSION,)
REQUIRED_TOP_LEVEL_SECTIONS = ("events", "run_metadata", "alignment", "summary")


class SchemaValidationError(ValueError):
    """The payload is not one of ours, or of a version that is not known here."""


def empty_alignment() -> Dict[str, Any]:
    """What stands under "alignment" before two runs were compared."""
    return {
        "matched": [],
        "ambiguous": [],
        "unmatched": {"left": [], "right": []},
        "counts": {"matched": 0, "ambiguous": 0, "unmatched": 0},
    }


def build_schema(
    events: List[Any],
    run_metadata: Mapping[str, Any],
    alignment: Mapping[str, Any],
    summary: Mapping[str, Any],
) -> Dict[str, Any]:
    """The payload of a file.

    >>> sorted(build_schema([], {}, {}, {}))
    ['alignment', 'events', 'run_metadata', 'schema_version', 'summary']
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "events": events,
        "run_metadata": run_metadata,
        "alignment": alignment,
        "summary": summary,
    }


def validate_schema(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The payload itself; SchemaValidationError says what is missing or of a wrong kind.

    >>> validate_schema({"schema_version": 1})
    Traceback (most recent call last):
    putils.compare_perf.schema.SchemaValidationError: Missing required field: events
    """
    if not isinstance(payload, Mapping):
        raise SchemaValidationError("Invalid payload: expected an object")
    if "schema_version" not in payload:
        raise SchemaValidationError("Missing required field: schema_version")
    version = payload["schema_version"]
    if isinstance(version, bool) or version not in SUPPORTED_SCHEMA_VERSIONS:
        known = ", ".join(str(v) for v in SUPPORTED_SCHEMA_VERSIONS)
        raise SchemaValidationError(
            f"Incompatible schema_version: expected one of [{known}], got {version}"
        )
    for name in REQUIRED_TOP_LEVEL_SECTIONS:
        if name not in payload:
            raise SchemaValidationError(f"Missing required field: {name}")
        kind = list if name == "events" else Mapping
        if not isinstance(payload[name], kind):
            word = "an array" if kind is list else "an object"
            raise SchemaValidationError(f"Invalid field: {name} must be {word}")
    return payload


def parse_schema(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """validate_schema() under the name that readers use.

    >>> parse_schema(build_schema([], {}, {}, {}))["events"]
    []
    """
    return validate_schema(payload)
