"""Examples in docstrings may write into ``folder``, which is new for each."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _folder_for_examples(doctest_namespace: dict[str, object], request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        doctest_namespace["folder"] = Path(request.getfixturevalue("tmp_path"))
