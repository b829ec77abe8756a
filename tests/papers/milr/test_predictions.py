import math

import numpy as np
import pytest
import torch
from papers.milr.tiny import RELATIONS, random_document, tiny_model

from rulewright.errors import DataError, FileError, ParseError
from rulewright.papers.documents import NOT_A_PAIR
from rulewright.papers.milr.predictions import DocumentPrediction, Predictions, best_threshold, predict

pytestmark = pytest.mark.slow

DOCUMENTS = [random_document(seed, entities=entities) for seed, entities in enumerate((3, 0, 5, 1, 4))]


@pytest.fixture(params=["bilstm", "atlop"])
def predictions(request, tmp_path):
    return predict(tiny_model(request.param, DOCUMENTS, tmp_path), DOCUMENTS, pieces_at_once=80)


def test_predictions_keep_the_order_of_documents(tmp_path):
    model = tiny_model("atlop", DOCUMENTS, tmp_path)
    model.train()
    found = predict(model, DOCUMENTS, pieces_at_once=80)
    assert model.training
    assert found.relations == RELATIONS
    for document, prediction in zip(DOCUMENTS, found.documents, strict=True):
        n = len(document.entities)
        assert prediction.title == document.title
        assert prediction.logits.shape == (n, n, 3) and prediction.logits.dtype == np.float32
        assert prediction.thresholds.shape == (n, n)
        (alone,) = predict(model, [document]).documents
        assert np.allclose(alone.logits, prediction.logits, atol=1e-5)
    assert predict(model, []).documents == ()


def test_what_is_saved_is_loaded(predictions, tmp_path):
    path = tmp_path / "predictions.npz"
    predictions.save(path)
    loaded = Predictions.load(path)
    assert loaded.relations == predictions.relations
    for mine, other in zip(predictions.documents, loaded.documents, strict=True):
        assert mine.title == other.title
        assert np.array_equal(mine.logits, other.logits)
        assert (mine.thresholds is None) == (other.thresholds is None)
        assert mine.thresholds is None or np.array_equal(mine.thresholds, other.thresholds)
    Predictions(RELATIONS, ()).save(path)
    assert Predictions.load(path).documents == ()


def test_what_cannot_be_loaded_is_named(predictions, tmp_path):
    path = tmp_path / "predictions.npz"
    with pytest.raises(FileError, match="cannot read"):
        Predictions.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(ParseError, match="not saved predictions"):
        Predictions.load(path)
    np.savez(path, header=np.array([object()], dtype=object))
    with pytest.raises(ParseError, match="not saved predictions"):
        Predictions.load(path)
    np.savez(path, logits=np.zeros((2, 3), np.float32))
    with pytest.raises(ParseError, match="not saved predictions"):
        Predictions.load(path)
    predictions.save(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ParseError, match="not saved predictions"):
        Predictions.load(path)


def test_margins_move_the_threshold_to_zero():
    logits = np.array([[[NOT_A_PAIR], [2.0]], [[-1.0], [NOT_A_PAIR]]], np.float32)
    assert DocumentPrediction("a", logits).margins()[0, 1, 0] == 2
    shifted = DocumentPrediction("a", logits).margins(0.25)[0, 1, 0]
    assert math.isclose(shifted, 2 - math.log(0.25 / 0.75), rel_tol=1e-6)
    thresholds = np.array([[0, 0.5], [1, 0]], np.float32)
    assert DocumentPrediction("a", logits, thresholds).margins(0.25)[1, 0, 0] == -2
    with pytest.raises(DataError, match="threshold must be > 0 and < 1, got 1"):
        DocumentPrediction("a", logits).margins(1)


def f1_at(predictions, documents, threshold):
    correct = predicted = gold = 0
    for prediction, document in zip(predictions.documents, documents, strict=True):
        facts = {(fact.head, fact.tail, RELATIONS.index(fact.relation)) for fact in document.facts}
        found = {tuple(index) for index in np.argwhere(prediction.margins(threshold) > 0).tolist()}
        correct, predicted, gold = correct + len(facts & found), predicted + len(found), gold + len(facts)
    return 2 * correct / (predicted + gold)


@pytest.mark.parametrize("seed", range(5))
def test_the_threshold_is_the_best_of_all(seed):
    generator = torch.Generator().manual_seed(seed)
    documents = [random_document(seed, entities=4), random_document(seed + 10, entities=3)]
    tables = [torch.randint(-3, 4, (n, n, 3), generator=generator).float().numpy() for n in (4, 3)]
    for table in tables:
        table[np.eye(len(table), dtype=bool)] = NOT_A_PAIR
    predictions = Predictions(
        RELATIONS, tuple(DocumentPrediction(d.title, t) for d, t in zip(documents, tables, strict=True))
    )
    best = best_threshold(predictions, documents)
    assert math.isclose(best.f1, f1_at(predictions, documents, best.threshold))
    assert math.isclose(best.f1, max(f1_at(predictions, documents, p) for p in np.linspace(0.01, 0.99, 197)))


def test_a_model_with_thresholds_keeps_them(tmp_path):
    predictions = predict(tiny_model("atlop", DOCUMENTS, tmp_path), DOCUMENTS)
    best = best_threshold(predictions, DOCUMENTS)
    assert best.threshold == 0.5 and math.isclose(best.f1, f1_at(predictions, DOCUMENTS, 0.5))


def test_other_documents_are_refused(predictions):
    with pytest.raises(DataError, match="different titles"):
        best_threshold(predictions, DOCUMENTS[1:])
    assert best_threshold(Predictions(RELATIONS, ()), []).f1 == 0
