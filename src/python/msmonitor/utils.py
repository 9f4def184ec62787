# SPDX-License-Identifier: MulanPSL-2.0
"""What is known about the job: the rank of this process, and the parallel groups it is in.

Groups are JSON: group_name, group_rank, global_ranks by the name of a communicator; "" without.
"""

from typing import Optional

from . import _job

__all__ = [
    "get_mindspore_parallel_group_info",
    "get_mindspore_rank_id",
    "get_parallel_group_info",
    "get_pytorch_parallel_group_info",
    "get_pytorch_rank_id",
    "get_rank_id",
]


def get_pytorch_rank_id() -> Optional[int]:
    found = _job.torch_rank()
    return found if found >= 0 else None


def get_mindspore_rank_id() -> Optional[int]:
    found = _job.mindspore_rank()
    return found if found >= 0 else None


def get_rank_id() -> int:
    """-1 if nobody knows."""
    return _job.rank()


def get_pytorch_parallel_group_info() -> str:
    return _job.text_of(_job.torch_groups())


def get_mindspore_parallel_group_info() -> str:
    return _job.text_of(_job.mindspore_groups())


def get_parallel_group_info() -> str:
    return _job.groups_text()
