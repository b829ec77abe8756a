from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.inject.atoms import zero_one
from rulewright.inject.atoms.zero_one import (
    GrowingProgram,
    InfeasibleError,
    OutOfTimeError,
    ZeroOneConstraint,
    find_smallest_conflict,
)

ATOMS = 9


@st.composite
def constraints(draw, unconditional=False):
    found = []
    for clause_index in range(draw(st.integers(1, 8))):
        atoms = draw(st.lists(st.integers(0, ATOMS - 1), min_size=1, max_size=4, unique=True))
        cut = draw(st.integers(0 if unconditional else 1, len(atoms)))
        found.append(ZeroOneConstraint(tuple(atoms[:cut]), tuple(atoms[cut:]), cut - 1, clause_index, ()))
    return found


def best_by_trying(gain, found):
    patterns = ((np.arange(2**ATOMS)[:, None] >> np.arange(ATOMS)) & 1).astype(bool)
    allowed = [all(constraint.excess(pattern) <= 0 for constraint in found) for pattern in patterns]
    return None if not any(allowed) else (patterns[allowed] @ gain).min()


def gains(seed):
    return np.random.default_rng(seed).normal(size=ATOMS)


@pytest.mark.parametrize("enumerated", [14, 0])
@given(found=constraints(unconditional=True), seed=st.integers(0, 99), split=st.integers(0, 8))
@settings(max_examples=40, deadline=None)
def test_growing_step_by_step_gives_the_optimum(enumerated, found, seed, split):
    gain = gains(seed)
    expected = best_by_trying(gain, found)
    program = GrowingProgram(gain, np.ones(ATOMS, dtype=bool), None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zero_one, "ENUMERATED", enumerated)
        try:
            for part in (found[:split], found[split:]):
                program.add(part)
                program.solve()
        except InfeasibleError as error:
            assert expected is None
            assert best_by_trying(gain, error.constraints) is None
            return
    assert expected is not None
    assert all(constraint.excess(program.labels) <= 0 for constraint in found)
    assert program.labels @ gain == pytest.approx(expected, abs=1e-12)


@given(found=constraints(unconditional=True))
@settings(max_examples=60, deadline=None)
def test_the_smallest_conflict_is_one_and_has_nothing_to_spare(found):
    gain = np.zeros(ATOMS)
    if best_by_trying(gain, found) is not None:
        return
    conflict = find_smallest_conflict(found)
    assert best_by_trying(gain, conflict) is None
    for position in range(len(conflict)):
        assert best_by_trying(gain, conflict[:position] + conflict[position + 1 :]) is not None


def test_equal_constraints_count_once():
    program = GrowingProgram(gains(0), np.ones(ATOMS, dtype=bool), None)
    assert program.add([ZeroOneConstraint((0, 1), (2,), 1, 0, ()), ZeroOneConstraint((1, 0), (2,), 1, 1, ())]) == 1


def test_fixed_atoms_stay_zero():
    free = np.ones(ATOMS, dtype=bool)
    free[2] = False
    gain = np.full(ATOMS, -1.0)
    program = GrowingProgram(gain, free, None)
    assert program.add([ZeroOneConstraint((2, 3), (4,), 1, 0, ())]) == 0  # its body cannot hold
    program.add([ZeroOneConstraint((0, 1), (2,), 1, 0, ())])
    program.solve()
    assert not program.labels[2]
    assert program.labels[[0, 1]].sum() == 1


def test_a_deadline_is_kept():
    program = GrowingProgram(gains(0), np.ones(ATOMS, dtype=bool), time.monotonic() - 1)
    program.solve()  # nothing to do
    program.add([ZeroOneConstraint((0,), (1,), 0, 0, ())])
    with pytest.raises(OutOfTimeError):
        program.solve()
