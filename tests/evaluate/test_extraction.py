from __future__ import annotations

import json
import random

import numpy as np
import pytest
from evaluate.plain_extraction import (
    RELATIONS,
    Plain,
    gold_predictions,
    random_chains,
    random_documents,
    random_predictions,
    random_train_facts,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.errors import DataError, ParseError
from rulewright.evaluate.extraction import (
    DistanceBuckets,
    check_predictions,
    compare_extraction,
    entity_distances,
    evaluate_extraction,
    named_facts,
    read_named_facts,
)
from rulewright.io.docred import Document, Entity, Fact, Mention, Prediction, write_documents
from rulewright.logic import parse_rules

seeds = given(seed=st.integers(0, 2**32))
FIGURES = ("wanted", "given", "correct", "precision", "recall", "f1", "ign_f1_docred", "ign_f1_logire")


def figures_of(counts) -> dict[str, float]:
    return {name: getattr(counts, name) for name in FIGURES}


@settings(max_examples=150, deadline=None)
@seeds
def test_counts_and_figures_equal_their_definitions(seed):
    chance = random.Random(seed)
    documents = random_documents(chance)
    predictions, train = random_predictions(chance, documents), random_train_facts(chance)
    plain = Plain(predictions, documents, train)
    scores = evaluate_extraction(predictions, documents, train_facts=train, relations=RELATIONS)
    assert figures_of(scores) == pytest.approx(plain.figures())
    assert scores.documents == len(documents)
    occurring = {fact.relation for fact in plain.gold | plain.given}
    assert set(scores.by_relation) == occurring
    for relation in occurring:
        expected = plain.figures(lambda fact, relation=relation: fact.relation == relation)
        assert figures_of(scores.by_relation[relation]) == pytest.approx(expected)
    sizes = [each.wanted for each in scores.by_relation.values()]
    assert sizes == sorted(sizes, reverse=True)


@settings(max_examples=100, deadline=None)
@seeds
def test_figures_by_distance_equal_their_definitions(seed):
    chance = random.Random(seed)
    documents = random_documents(chance)
    predictions, train = random_predictions(chance, documents), random_train_facts(chance)
    unit = chance.choice(("tokens", "starts", "sentences"))
    buckets = DistanceBuckets(unit, (0, 1, 3) if unit == "sentences" else (0, 2, 5))
    plain = Plain(predictions, documents, train)
    scores = evaluate_extraction(
        predictions, documents, train_facts=train, relations=RELATIONS, distances=buckets
    ).by_distance
    assert [(each.low, each.high) for each in scores] == buckets.ranges()
    for each in scores:
        high = 1000 if each.high is None else each.high
        expected = plain.figures(lambda fact, low=each.low, high=high: low <= plain.distance(fact, unit) < high)
        assert figures_of(each.counts) == pytest.approx(expected)


@settings(max_examples=100, deadline=None)
@seeds
def test_logic_equals_its_definition(seed):
    chance = random.Random(seed)
    documents = random_documents(chance)
    predictions, chains = random_predictions(chance, documents), random_chains(chance)
    loops = chance.choice(("against", "skip"))
    skip = loops == "skip"
    plain = Plain(predictions, documents)
    rules = [chain.rule() for chain in chains]
    scores = evaluate_extraction(predictions, documents, rules=rules, loops=loops)
    found = [(each.rule, each.pairs, each.satisfied, each.groundings) for each in scores.logic.rules]
    counts = [plain.rule(chain, skip_loops=skip) for chain in chains]
    assert found == [(rule, *each) for rule, each in zip(rules, counts, strict=True)]
    assert scores.logic.value == pytest.approx(plain.logic(chains, skip_loops=skip))
    assert scores.logic.fired == sum(pairs > 0 for pairs, _, _ in counts)
    assert scores.logic.pairs == sum(pairs for pairs, _, _ in counts)
    assert scores.logic.groundings == sum(groundings for *_, groundings in counts)
    gold = Plain(gold_predictions(documents), documents)
    assert scores.gold_logic.value == pytest.approx(gold.logic(chains, skip_loops=skip))


def plain_comparison(times, first, second, documents, train, chains):
    """Evaluate both systems on copies of the documents that each row of ``times`` draws."""
    found: dict[str, list[float]] = {}
    for row in times:
        drawn = [
            (f"{document.title} copy {copy}", document)
            for document, count in zip(documents, row, strict=True)
            for copy in range(count)
        ]
        copies = [Document(title, each.sentences, each.entities, each.facts) for title, each in drawn]
        both = []
        for system in (first, second):
            repeated = [
                Prediction(title, each.head, each.relation, each.tail)
                for title, document in drawn
                for each in system
                if each.title == document.title
            ]
            plain = Plain(repeated, copies, train)
            both.append(plain.figures() | {"logic": plain.logic(chains)})
        for name in ("f1", "ign_f1_docred", "ign_f1_logire", "logic"):
            if both[0][name] is not None and both[1][name] is not None:
                found.setdefault(name, []).append(both[0][name] - both[1][name])
    return found


@settings(max_examples=20, deadline=None)
@seeds
def test_comparison_equals_evaluation_of_copied_documents(seed):
    chance = random.Random(seed)
    documents = random_documents(chance)
    first, second = random_predictions(chance, documents), random_predictions(chance, documents)
    train, chains = random_train_facts(chance), random_chains(chance)
    compared = compare_extraction(
        first,
        second,
        documents,
        train_facts=train,
        rules=[chain.rule() for chain in chains],
        relations=RELATIONS,
        resamples=20,
        confidence=0.8,
        seed=7,
    )
    count = len(documents)
    times = np.random.default_rng(7).multinomial(count, [1 / count] * count, size=20)
    expected = plain_comparison(times, first, second, documents, train, chains)
    whole = plain_comparison([[1] * count], first, second, documents, train, chains)
    assert list(compared) == ["f1", "ign_f1_docred", "ign_f1_logire", "logic"]
    for name, each in compared.items():
        if name not in whole:
            assert name == "logic" and each.as_dict()["p_value"] is None
            continue
        differences = [round(value, 12) for value in expected[name]]
        assert each.resamples == len(differences)
        assert each.difference == pytest.approx(whole[name][0])
        if differences:
            assert (each.low, each.high) == pytest.approx(tuple(np.quantile(differences, [0.1, 0.9])), abs=1e-9)
            against = min(sum(value <= 0 for value in differences), sum(value >= 0 for value in differences))
            assert each.p_value == pytest.approx(min(1, 2 * (1 + against) / (1 + len(differences))))


def people(*names: str) -> tuple[Entity, ...]:
    return tuple(Entity((Mention(name, "PER"),)) for name in names)


TWO = (
    Document("A", (), people("Ann", "Bob"), (Fact(0, "spouse_of", 1), Fact(0, "spouse_of", 1))),
    Document("B", (), people("Cid"), ()),
    Document("C", (), (), ()),
)


def test_what_is_not_asked_for_is_none():
    scores = evaluate_extraction([], TWO)
    assert (scores.wanted, scores.given, scores.f1) == (1, 0, 0)
    assert scores.logic is scores.gold_logic is scores.by_distance is scores.ign_f1_docred is None
    assert set(scores.as_dict()) == {
        *("documents", "wanted", "given", "correct", "precision", "recall", "f1", "by_relation", "unseen_relations")
    }


def test_no_documents_and_no_facts():
    rules = parse_rules("spouse_of(X, Y) :- spouse_of(Y, X).")
    for documents in ((), TWO[1:]):
        scores = evaluate_extraction([], documents, rules=rules, train_facts=[], distances=None)
        assert scores.f1 == scores.ign_f1_docred == scores.ign_f1_logire == 0
        assert scores.logic.value is None and scores.logic.groundings == 0
    with pytest.raises(DataError, match="needs the same documents twice, got 0 and 0"):
        compare_extraction([], [], [])


def test_everything_is_json():
    documents = random_documents(random.Random(3))
    rules = parse_rules("p(X, Z) :- q(X, Y), r(Z, Y). never(X, Y) :- at_all(Y, X).")
    predictions = gold_predictions(documents)
    scores = evaluate_extraction(
        predictions, documents, train_facts=[("Ann", "Bob", "p")], rules=rules, distances=DistanceBuckets()
    )
    found = json.loads(json.dumps(scores.as_dict(), allow_nan=False))
    assert found["f1"] == 1 and found["logic"]["rules"][1]["share"] is None
    assert found["by_distance"][-1]["low"] == 400 and found["by_distance"][-1]["high"] is None
    assert found["unseen_relations"] == ["at_all", "never"]
    compared = compare_extraction(predictions, [], documents, rules=rules, resamples=10)
    json.dumps({name: each.as_dict() for name, each in compared.items()}, allow_nan=False)


def test_inputs_may_be_iterators_and_numpy_indices():
    predictions = (Prediction("A", np.int64(index), "spouse_of", np.int64(1)) for index in (0, 1))
    scores = evaluate_extraction(predictions, iter(TWO), train_facts=iter([("Ann", "Bob", "spouse_of")]))
    assert (scores.correct, scores.given, scores.correct_in_train) == (1, 2, 1)


@pytest.mark.parametrize(
    ("prediction", "message"),
    [
        (Prediction("D", 0, "spouse_of", 1), "unknown document 'D'; known: A, B, C"),
        (Prediction("A", 2, "spouse_of", 1), "the head is 2 but the document has the entities 0 … 1"),
        (Prediction("A", 0, "spouse_of", -1), "the tail is -1 but the document has the entities 0 … 1"),
        (Prediction("C", 0, "spouse_of", 0), "the head is 0 but the document has no entities"),
        (Prediction("A", 0.5, "spouse_of", 1), "the head must be the index of an entity, a whole number"),
        (Prediction("A", 10**30, "spouse_of", 1), "the head is 1000000000000000000000000000000 but"),
        (Prediction("A", 0, "spouse_off", 1), "unknown relation 'spouse_off'; did you mean 'spouse_of'?"),
    ],
)
def test_a_wrong_prediction_is_named(prediction, message):
    good = Prediction("A", 0, "spouse_of", 1)
    for options in ({"train_facts": []}, {"relations": ["spouse_of"]}):
        with pytest.raises(DataError) as caught:
            evaluate_extraction([good, prediction], TWO, **options)
        assert str(caught.value).startswith(f"prediction 2 (title {prediction.title!r}, head {prediction.head!r}, ")
        assert message in str(caught.value)
        with pytest.raises(DataError, match=r"^prediction 1 "):
            check_predictions([prediction], TWO, **options)
        with pytest.raises(DataError, match=r"^other prediction 1 "):
            compare_extraction([good], [prediction], TWO, **options)


def test_a_relation_that_gold_lacks_counts_and_is_named():
    scores = evaluate_extraction([Prediction("A", 0, "knows", 1)], TWO)
    assert scores.given == scores.by_relation["knows"].given == 1
    assert scores.unseen_relations == ("knows",)
    known = evaluate_extraction([Prediction("A", 0, "knows", 1)], TWO, train_facts=[("Ann", "Dan", "knows")])
    assert known.unseen_relations == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relations": ["knows"]}, "gold document 'A': unknown relation 'spouse_of'"),
        (
            {"relations": ["spouse_of"], "rules": parse_rules("spouse_of(X, Y) :- spouse_off(Y, X).")},
            r"rule spouse_of\(V0, V1\) :- spouse_off\(V1, V0\)\.: unknown relation 'spouse_off'; did you mean",
        ),
        ({"rules": parse_rules("p(X, Z) :- q(X, Y), q(Z, W).")}, "needs chain rules, .* got p"),
        ({"rules": parse_rules("hard p(X) => q(X).")}, "needs chain rules, .* got hard"),
        ({"rules": [], "loops": "maybe"}, "loops must be 'against' or 'skip', got 'maybe'"),
        ({"distances": DistanceBuckets()}, "document 'A' has no text, so distances in tokens are unknown"),
        ({"distances": DistanceBuckets("sentences")}, r"'A': a mention of entity 0 \('Ann'\) has no place in the text"),
    ],
)
def test_options_that_cannot_be_meant(options, message):
    with pytest.raises(DataError, match=message):
        evaluate_extraction([], TWO, **options)


def test_titles_must_differ():
    with pytest.raises(DataError, match="two gold documents are titled 'A'"):
        evaluate_extraction([], [TWO[0], TWO[1], TWO[0]])


@pytest.mark.parametrize("bounds", [(1, 2), (0, 5, 5), (0, 9, 3)])
def test_bounds_of_distance_start_at_0_and_increase(bounds):
    with pytest.raises(DataError, match="must start at 0 and increase"):
        DistanceBuckets(bounds=bounds)
    with pytest.raises(DataError, match="unit of distance must be one of tokens, starts, sentences, got 'words'"):
        DistanceBuckets("words")


def test_a_mention_outside_the_text_has_no_distance():
    lost = Document("A", (("one", "two"),), (Entity((Mention("x", "PER", 4, 0, 1),)),))
    with pytest.raises(DataError, match="has no place in the text"):
        entity_distances(lost)


def test_training_facts_from_either_file(tmp_path):
    expected = frozenset({("Ann", "Bob", "spouse_of")})
    assert named_facts(TWO) == expected
    write_documents(TWO, tmp_path / "train.json")
    (tmp_path / "train.fact").write_text('[["Ann", "Bob", "spouse_of"], ["Ann", "Bob", "spouse_of"]]')
    (tmp_path / "empty.fact").write_text("[]")
    assert read_named_facts(tmp_path / "train.json") == read_named_facts(tmp_path / "train.fact") == expected
    assert read_named_facts(tmp_path / "empty.fact") == frozenset()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[["Ann", "Bob"]]', r"\[0\] must be \[head name, tail name, relation\], got 2 strings"),
        ('[["Ann", "Bob", 3]]', r"\[0\]\[2\] must be a string, got the number 3"),
        ('{"a": 1}', "the top level must be a list of facts or documents, got an object"),
        ("[", "the JSON ends too early"),
    ],
)
def test_a_wrong_file_of_training_facts(tmp_path, text, message):
    (tmp_path / "bad.fact").write_text(text)
    with pytest.raises(ParseError, match=message):
        read_named_facts(tmp_path / "bad.fact")
