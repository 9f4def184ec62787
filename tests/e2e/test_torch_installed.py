# SPDX-License-Identifier: MulanPSL-2.0
"""Each PyTorch that the tests count on is here."""

import pytest

from capabilities import lacks
from torches import missing


@pytest.mark.parametrize("name", ["system", "current"])
def test_one_is_here(name):
    why = dict(missing()).get(name)
    if why:
        lacks(f"torch-{name}", why)
