"""The folder of real data, where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("RULEWRIGHT_DATA") or Path(__file__).parents[2] / "shared" / "data")

needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no real data at {DATA}; set RULEWRIGHT_DATA to a folder that has it"
)
