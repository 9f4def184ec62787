# SPDX-License-Identifier: MulanPSL-2.0
"""Tests on PyTorch are skipped where there is none. Where they must run, that is a failure."""

import os

import pytest

from torches import missing


@pytest.mark.skipif(not os.environ.get("CI"), reason="PyTorch is a must in CI only")
def test_a_current_one_is_here():
    assert "current" not in dict(missing()), dict(missing())["current"]
