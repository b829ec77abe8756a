from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pytest

from rulewright import (
    KnowledgeBase,
    PathMixture,
    RankingCalibration,
    RuleMiner,
    apply,
    calibrate_ranking,
    complete,
    parse_rules,
    rank,
)
from rulewright.data.generators import family
from rulewright.engine import store_facts
from rulewright.errors import DataError, ParseError, UnknownNameError
from rulewright.evaluate.calibration import Calibration, measure_reliability
from rulewright.logic import Atom, Symbol, Variable
from rulewright.reason import calibrate

ASKED = ("forward", "backward", "fact")
FEW = ["child_of", "grandparent_of", "uncle_of"]


@pytest.fixture(scope="module")
def graph():
    """A family with gaps and errors: what is kept, a split that is not asked about, and what is."""
    whole = family(40, missing=0.1, noise=0.05, seed=1).kb
    kept, held = whole.hold_out(0.3, keep_names=True)
    other, asked = held.hold_out(0.7, seed=1)
    return kept.with_splits({"test": other, "valid": asked})


@pytest.fixture(scope="module")
def mined(graph):
    return RuleMiner(max_length=2).fit(graph).rules_


@pytest.fixture(scope="module")
def mixture(graph):
    return PathMixture(max_length=2, targets=FEW).fit(graph)


@pytest.fixture
def fitted_columns(monkeypatch):
    """What curves are fitted to: rows of name, score, truth and weight by the identity of the curves."""
    columns, kept, fit = {}, [], Calibration.fit

    def note(names, relation, scores, is_true, weights=None, **options):
        found = fit(names, relation, scores, is_true, weights, **options)
        kept.append(found)  # so that no other has its identity
        relations = [names[index] for index in relation]
        columns[id(found)] = list(zip(relations, scores.tolist(), is_true.tolist(), weights.tolist(), strict=True))
        return found

    monkeypatch.setattr(Calibration, "fit", note)
    return columns


def plain_candidates(rules, kb, asked, aggregation, predicates, known=()):
    """All candidates with a score, by a loop over queries and their answers, and all new facts."""
    true = {(name, *pair) for name in predicates for pair in asked.tuples(name)}
    decided = {(name, *pair) for base in (kb, *known) for name in predicates for pair in base.tuples(name)} - true
    rows = defaultdict(list)
    for name in predicates:
        for direction, side in (("forward", 0), ("backward", 1)):
            for entity in sorted({pair[side] for pair in asked.tuples(name)}):
                terms = [Symbol(entity), Variable("X")] if side == 0 else [Variable("X"), Symbol(entity)]
                query = Atom(name, tuple(terms))
                for answer in rank(rules, kb, query, count=kb.n_entities, aggregation=aggregation, known=True):
                    fact = (name, entity, answer.entity) if side == 0 else (name, answer.entity, entity)
                    if fact not in decided:
                        rows[direction].append((name, answer.score, fact in true, 1.0))
    rule_set = getattr(rules, "rules_", rules)
    for fact in apply(rule_set, kb, aggregation=aggregation):
        if fact.predicate in predicates and (fact.predicate, *fact.args) not in decided:
            rows["fact"].append((fact.predicate, fact.score, (fact.predicate, *fact.args) in true, 1.0))
    return rows


@pytest.fixture(scope="module")
def expected_of_mixture(graph, mixture):
    return plain_candidates(mixture, graph, graph.split("valid"), "weight", FEW, [graph.split("test")])


@pytest.fixture(scope="module")
def expected_of_mined(graph, mined):
    return plain_candidates(mined, graph, graph.split("valid"), "max-plus", FEW, [graph.split("test")])


def check_same(found, expected):
    """Tell whether rows are the same, in any order, but for the last digits of scores."""

    def parts(rows):
        scores = defaultdict(list)
        for name, score, is_true, weight in rows:
            scores[name, is_true, weight].append(score)
        return {key: sorted(part) for key, part in scores.items()}

    found, expected = parts(found), parts(expected)
    assert found.keys() == expected.keys()
    for key, scores in expected.items():
        assert found[key] == pytest.approx(scores, abs=1e-8), key


def relations_of(split):
    return [name for name, declaration in split.predicates.items() if declaration.arity == 2 and split.count(name)]


@pytest.mark.slow
@pytest.mark.parametrize(("aggregation", "memory"), [("max-plus", None), ("max", 1), ("noisy-or", None)])
def test_mined_rules_are_fitted_to_all_candidates(graph, mined, fitted_columns, monkeypatch, aggregation, memory):
    if memory is not None:  # a query at a time
        monkeypatch.setattr(calibrate, "USUAL_MEMORY", memory)
    asked = graph.split("valid")
    calibration = calibrate_ranking(mined, graph, predicates=FEW, aggregation=aggregation, candidates=10_000)
    expected = plain_candidates(mined, graph, asked, aggregation, FEW, [graph.split("test")])
    for part in ASKED:
        check_same(fitted_columns[id(calibration.curves[part])], expected[part])
    assert calibration.aggregation == aggregation and calibration.rules == len(mined)


@pytest.mark.slow
def test_all_relations_of_a_split_are_fitted(graph, mined, fitted_columns):
    asked = graph.split("valid")
    calibration = calibrate_ranking(mined, graph, candidates=10_000)
    expected = plain_candidates(mined, graph, asked, "max-plus", relations_of(asked), [graph.split("test")])
    for part in ASKED:
        check_same(fitted_columns[id(calibration.curves[part])], expected[part])
    facts = sum(asked.count(name) for name in relations_of(asked))
    assert calibration.fitted_on == f"valid, {facts:,} facts"
    spoken = sum(row[2] for part in ("forward", "backward") for row in expected[part])
    assert calibration.note == (
        f"no rule speaks for {2 * facts - spoken} of {2 * facts} right answers, which no probability counts"
    )


def test_weights_are_fitted_to_all_candidates(graph, mixture, fitted_columns, expected_of_mixture):
    calibration = calibrate_ranking(mixture, graph, predicates=FEW, candidates=10_000)
    assert calibration.aggregation == "weight" and calibration.rules == len(mixture.rules_)
    for part in ASKED:
        check_same(fitted_columns[id(calibration.curves[part])], expected_of_mixture[part])
    by_rules = calibrate_ranking(mixture.rules_, graph, predicates=FEW, candidates=10_000)
    assert by_rules.as_dict() == calibration.as_dict()


def test_what_else_is_known_is_no_candidate(graph, mined, fitted_columns, expected_of_mined):
    asked, other = graph.split("valid"), graph.split("test")
    kept = graph.with_splits({})
    calibration = calibrate_ranking(mined, kept, asked, known=[other], predicates=FEW, candidates=10_000)
    unfiltered = calibrate_ranking(mined, kept, asked, predicates=FEW, candidates=10_000)
    for part in ASKED:
        check_same(fitted_columns[id(calibration.curves[part])], expected_of_mined[part])
        assert len(fitted_columns[id(unfiltered.curves[part])]) > len(expected_of_mined[part])
    assert calibration.fitted_on.startswith("held-out facts, ")


@pytest.mark.parametrize("candidates", [1, 3])
def test_those_drawn_stand_for_those_left_out(
    graph, mined, mixture, fitted_columns, expected_of_mined, expected_of_mixture, candidates
):
    for rules, expected in ((mined, expected_of_mined), (mixture, expected_of_mixture)):
        calibration = calibrate_ranking(rules, graph, predicates=FEW, candidates=candidates)
        for part in ASKED:
            rows = fitted_columns[id(calibration.curves[part])]
            assert len(rows) < len(expected[part])
            for name in FEW:
                every = [row for row in expected[part] if row[0] == name]
                drawn = [row for row in rows if row[0] == name]
                assert sum(weight for *_, weight in drawn) == pytest.approx(len(every))
                # all right answers are there, each for itself
                check_same([row for row in drawn if row[2]], [row for row in every if row[2]])
                assert {round(row[1], 6) for row in drawn} <= {round(row[1], 6) for row in every}
                assert all(weight >= 1 for *_, weight in drawn)


def test_heads_without_a_fact_are_a_sample_of_their_own(mined, fitted_columns):
    kept, asked = family(160, missing=0.1, seed=2).kb.hold_out(0.05, keep_names=True)
    by_two = mined.filter(lambda rule: len(rule.body) == 2)
    calibration = calibrate_ranking(by_two, kept, asked, predicates="child_of", candidates=10_000)
    heads = {head for head, _ in asked.tuples("child_of")}
    rows = fitted_columns[id(calibration.curves["fact"])]
    true = set(asked.tuples("child_of"))
    facts = [fact for fact in apply(by_two, kept, aggregation="max-plus") if fact.predicate == "child_of"]
    weights = {weight for *_, weight in rows}
    assert weights == {1.0, (kept.n_entities - len(heads)) / 100}
    assert all(weight == 1 for _, _, is_true, weight in rows if is_true)
    assert sum(row[2] for row in rows) == sum(fact.args in true for fact in facts) > 0
    assert sum(row[3] == 1 for row in rows) == sum(fact.args[0] in heads for fact in facts)


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_probabilities_never_fall(graph, mined, method):
    calibration = calibrate_ranking(mined, graph, predicates=FEW, method=method)
    scores = np.linspace(0, 1, 201)
    for part in ASKED:
        for name in (*FEW, "spouse_of"):
            found = calibration.probabilities(name, scores, part)
            assert (np.diff(found) >= -1e-12).all() and found.min() >= 0 and found.max() <= 1
    with pytest.raises(DataError, match="asked must be 'forward', 'backward' or 'fact', got 'both'"):
        calibration.probabilities("child_of", [0.5], "both")


def test_probabilities_hold_better_than_scores(graph, mined, mixture):
    for rules in (mined, mixture):
        calibration = calibrate_ranking(rules, graph)
        assert list(calibration.judged) == list(ASKED)
        for judged in calibration.judged.values():
            assert judged.after.error < judged.before.error


def test_curves_are_judged_by_what_they_have_not_seen(graph, mined, fitted_columns):
    options = {"predicates": FEW, "candidates": 10_000}
    whole = calibrate_ranking(mined, graph, **options)
    every = {part: fitted_columns[id(whole.curves[part])] for part in ASKED}
    half = calibrate_ranking(mined, graph, refit=False, **options)
    assert half.fitted_on == whole.fitted_on.replace("valid", "half the queries of valid")
    for part in ASKED:
        assert half.judged[part].after.as_dict() == whole.judged[part].after.as_dict()
        seen, unseen = fitted_columns[id(half.curves[part])], list(every[part])
        for row in seen:
            unseen.remove(row)
        assert unseen and 0 < len(seen) < len(every[part])
        said = [half.probabilities(name, [score], part)[0] for name, score, *_ in unseen]
        truth, weights = [row[2] for row in unseen], [row[3] for row in unseen]
        for found, values in (
            (half.judged[part].after, said),
            (half.judged[part].before, [min(row[1], 1.0) for row in unseen]),
        ):
            expected = measure_reliability(values, truth, weights)
            assert found.candidates == pytest.approx(expected.candidates)
            assert found.predicted == pytest.approx(expected.predicted, nan_ok=True)
            assert found.observed == pytest.approx(expected.observed, nan_ok=True)


def test_the_same_seed_gives_the_same_curves(graph, mined):
    one, same, other = (
        calibrate_ranking(mined, graph, predicates=FEW, candidates=2, seed=seed).as_dict() for seed in (3, 3, 4)
    )
    assert one == same != other


def test_what_is_saved_is_read(graph, mined, tmp_path):
    path = tmp_path / "calibration.json"
    for method in ("isotonic", "platt"):
        calibration = calibrate_ranking(mined, graph, predicates=FEW, method=method)
        calibration.save(path)
        read = RankingCalibration.read(path)
        assert read.curves == calibration.curves
        assert read.as_dict() == calibration.as_dict()
        assert repr(read) == repr(calibration)
        assert repr(read).startswith("RankingCalibration(max-plus, valid, ")


def test_what_is_read_is_equal(graph, mined, tmp_path):
    calibration = calibrate_ranking(mined, graph, predicates=FEW)
    calibration.save(tmp_path / "calibration.json")
    assert RankingCalibration.read(tmp_path / "calibration.json") == calibration


def test_bad_files_are_refused(graph, mined, tmp_path):
    path = tmp_path / "calibration.json"
    calibrate_ranking(mined, graph, predicates=FEW).save(path)
    good = json.loads(path.read_text(encoding="utf-8"))
    reliability = good["judged"]["fact"]["after"]
    for changes, message in (
        ({"format": "rulewright calibration 1"}, "format must be 'rulewright ranking calibration 1', got the string"),
        ({"aggregation": "sum"}, "aggregation must be one of max-plus, max, noisy-or, weight, got the string 'sum'"),
        ({"rules": 1.5}, "rules must be a whole number, got the number 1.5"),
        ({"curves": {}}, "curves has no 'forward'; it has nothing"),
        ({"judged": {"both": {}}}, "both' is not judged; forward, backward, fact are"),
        ({"judged": {"fact": {"before": reliability}}}, "has no 'after'"),
        ({"note": None}, "the top level has no 'note'"),
        (
            {"judged": {"fact": {"after": reliability, "before": reliability | {"observed": [0.5]}}}},
            "before.observed must hold 10 numbers, got 1",
        ),
    ):
        path.write_text(json.dumps(good | changes), encoding="utf-8")
        with pytest.raises(ParseError) as error:
            RankingCalibration.read(path)
        assert str(error.value).startswith(f"{path}: ") and message in str(error.value)


def test_answers_and_new_facts_have_probabilities(graph, mined):
    calibration = calibrate_ranking(mined, graph)
    for query, part in (("child_of({}, X)", "forward"), ("child_of(X, {})", "backward")):
        entity = graph.tuples("child_of")[0][0 if part == "forward" else 1]
        answers = rank(mined, graph, query.format(entity), calibration=calibration, known=True)
        assert len(answers) and answers.note == ""
        expected = calibration.probabilities("child_of", [answer.score for answer in answers], part)
        assert [answer.probability for answer in answers] == expected.tolist()
        assert f"  p {answers[0].probability:.3g}" in str(answers)
        assert answers.to_frame("polars")["probability"].to_list() == expected.tolist()
    best = complete(mined, graph, count=20, calibration=calibration)
    for link in best:
        expected = calibration.probabilities(link.fact.predicate, [link.score], "fact").tolist()
        assert [link.probability] == (expected if len(link.fact.args) == 2 else [None])
    assert best.to_frame("polars")["probability"].to_list() == [link.probability for link in best]
    plain = complete(mined, graph, count=20)
    assert all(link.probability is None for link in plain) and "probability" not in plain.to_frame("polars").columns


def test_other_scores_and_other_rules_are_told(graph, mined):
    calibration = calibrate_ranking(mined, graph, predicates=FEW)
    entity = graph.tuples("child_of")[0][0]
    query = f"child_of({entity}, X)"
    for refused in (
        lambda: rank(mined, graph, query, aggregation="noisy-or", calibration=calibration),
        lambda: complete(mined, graph, aggregation="noisy-or", calibration=calibration),
    ):
        with pytest.raises(DataError, match="is of scores by 'max-plus', and these are by 'noisy-or'; choose aggr"):
            refused()
    fewer = mined.filter(lambda rule: rule is not mined.rules[0])
    note = (
        f"the calibration was fitted to scores of {len(mined):,} statements, and these are of {len(fewer):,}; "
        "calibrate again where they are other rules"
    )
    assert calibration.check_use("max-plus", len(mined)) == ""
    assert rank(fewer, graph, query, calibration=calibration).note == note
    assert note in complete(fewer, graph, count=3, calibration=calibration).note
    with pytest.raises(DataError, match="a calibration is of relations of two entities, and male"):
        rank(mined, graph, "male(X)", calibration=calibration)


def test_a_fact_of_one_entity_has_no_probability(graph, mined):
    calibration = calibrate_ranking(mined, graph, predicates=FEW)
    rules = parse_rules("0.9 :: child_of(X, Y) :- sibling_of(X, Z), child_of(Z, Y). 0.5 :: male(X) :- child_of(X, Y).")
    links = complete(rules, graph, calibration=calibration)
    assert {link.fact.predicate: link.probability is None for link in links} == {"child_of": False, "male": True}


def kb_triples(kb):
    return [(head, name, tail) for name in kb.predicates for head, tail in kb.tuples(name)]


def test_what_cannot_be_calibrated_is_refused(graph, mined, tmp_path):
    nothing = "the split has no fact of two entities, so there is nothing to calibrate by"
    with pytest.raises(DataError, match=nothing):
        calibrate_ranking(mined, graph, graph.with_facts({}))
    with pytest.raises(DataError, match=nothing):
        calibrate_ranking(mined, graph, predicates=["male"])
    silent = parse_rules("0.5 :: spouse_of(X, Y) :- parent_of(X, Y), parent_of(Y, X).")
    with pytest.raises(DataError, match=r"rules speak for no fact of the split \(forward queries\), so no score can"):
        calibrate_ranking(silent, graph)
    for options, message in (
        ({"candidates": 0}, "candidates must be >= 1, got 0"),
        ({"refit": 1}, "refit must be True or False, got 1"),
        ({"aggregation": "sum"}, "aggregation must be 'max-plus', 'max', 'noisy-or' or 'weight', got 'sum'"),
        ({"method": "beta"}, "method must be 'isotonic' or 'platt', got 'beta'"),
        ({"predicates": 3}, "predicates must be a name, a list of names or None, got 3"),
    ):
        with pytest.raises(DataError, match=message):
            calibrate_ranking(mined, graph, **options)
    with pytest.raises(UnknownNameError, match="did you mean 'child_of'"):
        calibrate_ranking(mined, graph, predicates="child_off")
    with pytest.raises(UnknownNameError, match="unknown split 'vali'; did you mean 'valid'"):
        calibrate_ranking(mined, graph, "vali")
    (tmp_path / "graph.tsv").write_text("a\tr\tb\n")
    with store_facts(tmp_path / "graph.tsv") as stored, pytest.raises(DataError, match="fitted to facts in memory"):
        calibrate_ranking(mined, stored)


def test_progress_is_told_and_few_facts_are_not_judged():
    pairs = [("ann", "bob"), ("bob", "cid"), ("eve", "dan")]
    kb = KnowledgeBase.from_triples([(one, "parent_of", two) for one, two in pairs] + [("bob", "child_of", "ann")])
    whole = KnowledgeBase.from_triples([*kb_triples(kb), ("cid", "child_of", "bob")])
    kept, asked = whole.hold_out(0.5, predicates=["child_of"], seed=0)
    told = []
    rules = parse_rules("0.9 :: child_of(X, Y) :- parent_of(Y, X).")
    calibration = calibrate_ranking(rules, kept, asked, progress=lambda *args: told.append(args))
    assert told == [("calibrating child_of", 0, 1), ("calibrating", 1, 1)]
    assert set(calibration.judged) <= {"fact"}
    for part in ("forward", "backward"):
        assert f"{part}: too few facts for two halves, so it was fitted to all and is not judged" in calibration.note
        assert calibration.probabilities("child_of", [0.9], part).tolist() == [1.0]
