# SPDX-License-Identifier: MulanPSL-2.0
"""What putils knows of the job it runs in: its rank, and what the user has switched on.

Nothing here imports torch: where the program has not, there is no rank and no tensor.
"""

import os
import sys
from typing import Any

DEBUG_ENV = "TSJPRINT"
TAG_ENV = "log_tag"
MD5_ENV, QUANTILES_ENV = "PUTILS_MD5", "PUTILS_QUANTILES"


def ifdebug() -> bool:
    """Whether putils prints: the environment has TSJPRINT=1.

    >>> ifdebug()
    True
    """
    try:
        return int(os.environ.get(DEBUG_ENV, "0")) == 1
    except ValueError:
        return False


def wants_md5() -> bool:
    """Whether tprint() and hooks compute checksums: not with PUTILS_MD5=0.

    >>> wants_md5()
    True
    """
    return os.environ.get(MD5_ENV, "") != "0"


def wants_quantiles() -> bool:
    """Whether they compute quantiles: not with PUTILS_QUANTILES=0.

    >>> wants_quantiles()
    True
    """
    return os.environ.get(QUANTILES_ENV, "") != "0"


def log_tag() -> str:
    """What the names of log files end with; empty: output goes to stdout."""
    return os.environ.get(TAG_ENV, "")


def loaded_torch() -> Any:
    """The module torch, if the program has imported it and that has ended; else None."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "Tensor") and hasattr(torch, "nn") else None


def rank(otherwise: int = -1) -> int:
    """The rank that torch.distributed gives; `otherwise` where it is not initialised."""
    torch = loaded_torch()
    distributed = getattr(torch, "distributed", None)
    try:
        if distributed and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank()
    except (AttributeError, RuntimeError, ValueError):
        pass  # half initialised, or being torn down
    return otherwise
