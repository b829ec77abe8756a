from __future__ import annotations

import random
from math import isnan

import pytest

import rulewright as rw
from rulewright.data.builder import KnowledgeBaseBuilder
from rulewright.errors import DataError, ParseError, RulewrightError
from rulewright.evaluate.classification import average_precision, evaluate_classification, read_scores
from rulewright.learn.markov.learner import MarkovLogic
from rulewright.learn.markov.marginals import format_scores

HEAD = "probability\tlog_odds\tpredicate\targuments\n"


def plain_average_precision(scores: list[float], truth: list[bool]) -> float:
    """Go down the distinct scores; equal ones enter together."""
    total, before, true = 0.0, 0.0, sum(truth)
    for bound in sorted(set(scores), reverse=True):
        inside = [label for score, label in zip(scores, truth, strict=True) if score >= bound]
        recall = sum(inside) / true
        total += (recall - before) * sum(inside) / len(inside)
        before = recall
    return total


@pytest.mark.parametrize("seed", range(20))
def test_average_precision(seed):
    draw = random.Random(seed)
    truth = [True, *(draw.random() < 0.4 for _ in range(draw.randrange(30)))]
    scores = [float(draw.randrange(6)) for _ in truth]
    assert average_precision(scores, truth) == pytest.approx(plain_average_precision(scores, truth))


def gold() -> rw.KnowledgeBase:
    builder = KnowledgeBaseBuilder()
    builder.add("smokes", ["ann"])
    builder.add("smokes", ["bob"], truth=False)
    builder.add("friend", ["ann", "bob"], truth=False)
    return builder.build()


def test_pooled_and_by_predicate():
    scores = {("smokes", ("ann",)): 1.0, ("smokes", ("bob",)): 0.0, ("friend", ("ann", "bob")): 2.0, ("x", ("y",)): 9.0}
    found = evaluate_classification(scores, gold())
    assert found.auc_pr == 0.5
    assert found.by_predicate["smokes"].auc_pr == 1
    assert isnan(found.by_predicate["friend"].auc_pr)
    assert found.as_dict()["by_predicate"]["friend"] == {"atoms": 1, "true": 0, "auc_pr": None}
    assert (found.pooled.atoms, found.pooled.true) == (3, 1)


def test_what_cannot_be_compared():
    with pytest.raises(DataError, match=r"no score for smokes\(bob\)"):
        evaluate_classification({("smokes", ("ann",)): 1.0}, gold())
    with pytest.raises(RulewrightError, match="unknown predicate"):
        evaluate_classification({("smoke", ("ann",)): 1.0}, gold())
    with pytest.raises(DataError, match="nothing to compare"):
        evaluate_classification({}, rw.KnowledgeBase({}, [], {}))
    with pytest.raises(DataError, match="NaN"):
        average_precision([float("nan")], [True])


def test_scores_come_back(tmp_path):
    kb = rw.KnowledgeBase.from_facts([("friend", "Ann Lee", "bob"), ("smokes", "bob")])
    found = MarkovLogic(rw.parse_rules("1.0 friend(X, Y) => smokes(X).")).fit(kb).predict(["smokes", "friend"])
    file = tmp_path / "scores.tsv"
    file.write_text(format_scores(found))
    assert read_scores(file) == {(each.predicate, each.args): each.logit for each in found}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("atom\tscore\n", ":1: expected the header"),
        (HEAD + "0.5\t0\tsmokes\n", ":2: expected four columns or more, found 3"),
        (HEAD + "0.5\tmuch\tsmokes\tann\n", ":2: log-odds are a number, found 'much'"),
        (HEAD + "0.5\t0\tsmokes\tann\n\n0.5\t1\tsmokes\tann\n", r":4: smokes\(ann\) has a score already"),
    ],
)
def test_wrong_files(tmp_path, text, message):
    file = tmp_path / "scores.tsv"
    file.write_text(text)
    with pytest.raises(ParseError, match=message):
        read_scores(file)
