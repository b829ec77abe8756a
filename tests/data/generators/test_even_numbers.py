import pytest
from data.generators.plain_rules import derived, facts_of

from rulewright.data.generators import even_successor
from rulewright.errors import DataError


@pytest.mark.parametrize(("n", "facts"), [(0, 2), (1, 3), (10, 17), (50, 77)])
def test_even_and_successor(n: int, facts: int) -> None:
    kb = even_successor(n).kb
    assert kb.n_facts == facts
    assert kb.domains["integer"].labels.tolist() == [str(number) for number in range(n + 1)]
    assert kb.tuples("zero") == [("0",)]
    assert kb.tuples("succ") == [(str(number), str(number + 1)) for number in range(n)]
    assert kb.tuples("even") == [(str(number),) for number in range(0, n + 1, 2)]


def test_even_numbers_follow_from_their_rules() -> None:
    generated = even_successor(20)
    facts = {**facts_of(generated.kb), "even": set()}
    for _ in range(11):
        facts["even"] |= {head for rule in generated.rules.rules for head in derived(rule, facts)}
    assert facts == facts_of(generated.kb)


def test_there_is_no_negative_count() -> None:
    with pytest.raises(DataError, match="n must be >= 0, got -1"):
        even_successor(-1)
