# SPDX-License-Identifier: MulanPSL-2.0
"""The analyses by their names."""

from dataclasses import MISSING, fields
from typing import Any, Dict, List

from ._findings import Findings
from .inefficient import InefficientAnalyzer
from .leaks import LeaksAnalyzer

_ANALYZERS: Dict[str, Any] = {"leaks": LeaksAnalyzer, "inefficient": InefficientAnalyzer}


def _find(analyzer_type: str) -> Any:
    if not isinstance(analyzer_type, str) or analyzer_type not in _ANALYZERS:
        raise ValueError(
            f"there is no analyzer {analyzer_type!r}: expected one of {', '.join(_ANALYZERS)}"
        )
    return _ANALYZERS[analyzer_type]


def list_analyzers() -> List[str]:
    """The names that analyze() takes.

    >>> msmemscope.list_analyzers()
    ['leaks', 'inefficient']
    """
    return list(_ANALYZERS)


def get_analyzer_config(analyzer_type: str) -> Dict[str, Any]:
    """What an analyzer is told: the class in msmemscope.analyzer and its parameters, by name.

    >>> msmemscope.get_analyzer_config("leaks")
    {'config_class': 'LeaksConfig', 'parameters': ['input_path', 'mstx_info', 'start_index']}
    """
    config = _find(analyzer_type).config_class
    return {"config_class": config.__name__, "parameters": [f.name for f in fields(config)]}


def analyze(analyzer_type: str, **parameters: Any) -> Findings:
    """Look at what was recorded, by the name of the analysis.

    The parameters are those of check_leaks() ("leaks") and check_inefficient() ("inefficient").

    >>> msmemscope.analyze("leaks", input_path="memscope_dump_1.csv", mstx_info="round")
    """
    analyzer = _find(analyzer_type)
    _check_names(analyzer_type, analyzer.config_class, parameters)
    return analyzer().analyze(analyzer.config_class(**parameters))


def _check_names(analyzer_type: str, config: Any, parameters: Dict[str, Any]) -> None:
    known = fields(config)
    names = ", ".join(f.name for f in known)
    for name in parameters:
        if name not in [f.name for f in known]:
            raise TypeError(f"analyze({analyzer_type!r}) takes no {name}=; expected {names}")
    for f in known:
        if f.default is MISSING and f.name not in parameters:
            raise TypeError(f"analyze({analyzer_type!r}) needs {f.name}=; it takes {names}")
