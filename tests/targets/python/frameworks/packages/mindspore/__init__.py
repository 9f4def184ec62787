# SPDX-License-Identifier: MulanPSL-2.0
"""A stand-in for MindSpore on an NPU: its cells, parameters and optimizers, with memory of the simulated pool."""

from . import nn
from .tensors import Parameter, ParameterTuple, Tensor

__all__ = ["Parameter", "ParameterTuple", "Tensor", "get_context", "nn"]


def get_context(name):
    return {"device_target": "Ascend"}[name]
