"""What is told of constants that a rule names and a domain has not."""

from __future__ import annotations

import pytest

from rulewright.errors import DataError
from rulewright.inject.atom_space import AtomSpace
from rulewright.logic import Symbol


def test_a_constant_that_looks_like_a_variable() -> None:
    space = AtomSpace("hard dog(x) => animal(x).")
    with pytest.raises(DataError, match=r"the constant x needs the names .*variables start upper-case: write X"):
        space.constant_index(Symbol("x"), "entity")
    named = AtomSpace("hard dog(x) => animal(x).", domains={"entity": ["rex"]})
    with pytest.raises(DataError, match=r"unknown constant.*'x'.*variables start upper-case: write X"):
        named.constant_index(Symbol("x"), "entity")
    with pytest.raises(DataError) as caught:
        named.constant_index(Symbol("ann"), "entity")
    assert "upper-case" not in str(caught.value)
