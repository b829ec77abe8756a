import pytest
from data.generators.plain_rules import facts_of, one_round
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.data.generators import gridworld
from rulewright.errors import DataError

STEPS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 5), st.data())
def test_grids_cell_by_cell(grids: int, size: int, data: st.DataObject) -> None:
    obstacles = data.draw(st.integers(0, size**2 - 1))
    generated = gridworld(grids, size=size, obstacles=obstacles, seed=data.draw(st.integers(0, 1000)))
    kb, facts, moves = generated.kb, facts_of(generated.kb), facts_of(generated.hidden)
    assert kb.worlds == tuple(f"grid{grid}" for grid in range(grids))
    for grid in range(grids):
        cells = {(x, y): (f"grid{grid}_x{x}", f"grid{grid}_y{y}") for x in range(size) for y in range(size)}
        targets = [cell for cell, labels in cells.items() if labels in facts["target"]]
        blocked = {cell for cell, labels in cells.items() if labels in facts["obstacle"]}
        assert len(targets) == 1
        assert len(blocked) == obstacles
        assert targets[0] not in blocked
        for (x, y), labels in cells.items():
            for way, (right, up) in STEPS.items():
                ahead = (targets[0][0] - x) * right + (targets[0][1] - y) * up > 0
                there = (x + right, y + up)
                barred = there in blocked or there not in cells
                assert (labels in facts[f"has_target_{way}"]) == ahead
                assert (labels in facts[f"has_obstacle_{way}"]) == barred
                assert (labels in moves[f"move_{way}"]) == (ahead and not barred)
        inside = kb.in_worlds([f"grid{grid}"])
        assert set(inside.tuples("obstacle")) == {cells[cell] for cell in blocked}
    assert one_round(generated) == moves


def test_everything_seen_on_a_grid_is_closed() -> None:
    generated = gridworld(1)
    assert generated.kb.closed == set(generated.rules.closed)
    assert set(generated.kb.predicates) - generated.kb.closed == {f"move_{way}" for way in STEPS}
    value, observed = generated.kb.tensor("obstacle", world="grid0")
    assert tuple(value.shape) == (5, 5)
    assert observed.all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grids": 0}, "grids must be >= 1, got 0"),
        ({"grids": 1, "size": 0}, "size must be >= 1, got 0"),
        ({"grids": 1, "obstacles": -1}, "obstacles must be >= 0, got -1"),
        ({"grids": 1, "size": 2, "obstacles": 4}, "obstacles must be <= 3, the cells beside the target, got 4"),
    ],
)
def test_impossible_grids(options: dict[str, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        gridworld(**options)
