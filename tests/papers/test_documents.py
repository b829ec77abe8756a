from dataclasses import replace

import pytest
import torch
from papers.milr.tiny import RELATIONS, TYPES, permuted, random_document, tiny_bert

from rulewright.errors import DataError
from rulewright.io.docred import Document, Entity, Fact, Mention
from rulewright.papers.documents import FIRST_TYPE, UNKNOWN_TYPE, Featurizer, collate
from rulewright.papers.encoders import PretrainedEncoder, WordTokenizer

pytestmark = pytest.mark.slow


def entity(*places, name="x", kind="LOC"):
    return Entity(tuple(Mention(name, kind, *place) for place in places))


def by_words(document, *, types=TYPES):
    return Featurizer(WordTokenizer.from_documents([document], min_count=1), relations=RELATIONS, entity_types=types)


BONN = Document(
    "Bonn",
    (("Bonn", "lies", "in", "West", "Germany", "."), ("Bonn", "is", "old", ".")),
    (entity((0, 0, 1), (1, 0, 1)), entity((0, 3, 5)), entity((0, 4, 5), kind="GPE")),
    (Fact(0, "part_of", 1), Fact(0, "part_of", 1), Fact(2, "capital_of", 0)),
)


def test_words_become_pieces_and_mentions_places():
    (features,) = by_words(BONN)([BONN])
    assert len(features.pieces) == 10
    assert features.mention_start.tolist() == [0, 6, 3, 4]
    assert features.mention_end.tolist() == [1, 7, 5, 5]
    assert features.mention_entity.tolist() == [0, 0, 1, 2]
    assert features.mention_sentence.tolist() == [0, 1, 0, 0]
    assert features.entity_type.tolist() == [FIRST_TYPE, FIRST_TYPE, UNKNOWN_TYPE]
    assert features.piece_coreference.tolist() == [1, 0, 0, 2, 3, 0, 1, 0, 0, 0]  # the inner mention wins
    assert features.piece_type.tolist() == [2, 0, 0, 2, 1, 0, 2, 0, 0, 0]
    assert features.distances()[0].tolist() == [0, 3, 4]
    labels = features.labels()
    assert labels.shape == (3, 3, 3) and int(labels.sum()) == 2
    assert labels[0, 1, 2] and labels[2, 0, 1]


def test_stars_stand_around_mentions(tmp_path):
    tokenizer = PretrainedEncoder.load(tiny_bert(tmp_path)).tokenizer
    document = random_document(3)
    (features,) = Featurizer(tokenizer, relations=RELATIONS, entity_types=TYPES)([document])
    (star,) = tokenizer.marker
    assert features.pieces[0] == tokenizer.prefix[0] and features.pieces[-1] == tokenizer.suffix[0]
    assert (features.pieces[features.mention_start] == star).all()
    assert (features.pieces[features.mention_end - 1] == star).all()
    mentions = [mention for each in document.entities for mention in each.mentions]
    for mention, start, end in zip(mentions, features.mention_start, features.mention_end, strict=True):
        inside = [piece for piece in features.pieces[start:end].tolist() if piece != star]
        words = document.sentences[mention.sentence][mention.start : mention.end]
        assert inside == [piece for parts in tokenizer.pieces(words) for piece in parts]
    boundaries = {(m.sentence, m.start, 0) for m in mentions} | {(m.sentence, m.end, 1) for m in mentions}
    assert int((features.pieces == star).sum()) == len(boundaries)


def test_a_text_in_one_piece_is_cut_into_sentences():
    document = Document("one", (("a", "b", ".", "c", "!", "d"),), (entity((0, 0, 1)), entity((0, 3, 4), (0, 5, 6))))
    (features,) = by_words(document)([document])
    assert features.mention_sentence.tolist() == [0, 1, 2]


def test_a_document_is_tokenized_once():
    featurizer = by_words(BONN)
    (first,), (second,) = featurizer([BONN]), featurizer([BONN])
    assert first is second
    (third,) = featurizer([replace(BONN)])
    assert third is not first


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_entities_does_not_matter_to_the_text(seed):
    document = random_document(seed, entities=5)
    twin = replace(document.entities[0], mentions=tuple(replace(m, name="twin") for m in document.entities[0].mentions))
    document = replace(document, entities=(*document.entities, twin))  # two entities at the very same places
    featurizer = by_words(document)
    (first,), (second,) = featurizer([document]), featurizer([permuted(document, [3, 1, 5, 4, 0, 2])])
    assert torch.equal(first.pieces, second.pieces)
    assert torch.equal(first.piece_type, second.piece_type)
    assert torch.equal(first.piece_coreference, second.piece_coreference)


@pytest.mark.parametrize("count", [0, 1])
def test_few_entities(count):
    document = random_document(1, entities=count)
    features = by_words(document)([document, random_document(2)])
    assert features[0].labels().shape == (count, count, 3)
    alone = collate(features[:1])
    assert len(alone.head) == 0 and alone.labels.shape == (0, 3)
    both = collate(features)
    assert both.mask.sum(1).tolist() == [count, 4] and len(both.head) == 12


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (Document("Empty", (), ()), "'Empty' has no text"),
        (Document("Blank", ((), ()), ()), "'Blank' has no text"),
        (Document("Far", (("a",),), (entity((1, 0, 1)),)), "in none of the 1 sentences"),
        (Document("Long", (("a",),), (entity((0, 0, 2)),)), "does not lie within its sentence of 1 tokens"),
        (Document("None", (("a",),), (entity(()),)), r"'None': no mention of entity 0 \('x'\) says at which tokens"),
        (
            Document("Near", (("a", "b"),), (entity((0, 0, 1)), entity((0, 1, 2))), (Fact(0, "part_off", 1),)),
            "'Near': unknown relation 'part_off'; did you mean 'part_of'",
        ),
    ],
)
def test_what_cannot_be_read_is_named(document, message):
    with pytest.raises(DataError, match=message):
        by_words(BONN)([document])


def test_a_batch_spreads_and_picks_pairs():
    documents = [random_document(1, entities=3), random_document(2, entities=1), random_document(3, entities=5)]
    features = by_words(documents[0])(documents)
    batch = collate(features)
    dense = batch.dense(batch.labels.float(), fill=-1)
    for number, each in enumerate(features):
        n = each.entities
        off_diagonal = ~torch.eye(n, dtype=torch.bool)
        assert torch.equal(dense[number, :n, :n][off_diagonal], each.labels()[off_diagonal].float())
        assert (dense[number, :n, :n][~off_diagonal] == -1).all()
        assert (dense[number, n:] == -1).all() and (dense[number, :, n:] == -1).all()
    assert torch.equal(batch.pairs(dense), batch.labels.float())
    assert torch.equal(batch.entity_document[batch.head], batch.pair_document)
    half = len(batch.head) // 2
    assert torch.equal(batch.head[:half], batch.tail[half:]) and torch.equal(batch.tail[:half], batch.head[half:])
