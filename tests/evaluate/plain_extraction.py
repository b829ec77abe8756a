"""Random documents, and every figure of extraction written down as its definition says it, however slow."""

from __future__ import annotations

import itertools
import random

from rulewright.io.docred import Document, Entity, Fact, Mention, Prediction
from rulewright.logic import Chain, Step

RELATIONS = ("p", "q", "r")
NAMES = ("Ann", "Bob", "Cid")


def random_documents(chance: random.Random) -> list[Document]:
    return [random_document(chance, f"title {number}") for number in range(chance.randint(1, 4))]


def random_document(chance: random.Random, title: str) -> Document:
    sentences = tuple(("word",) * chance.randint(3, 6) for _ in range(3))
    entities = tuple(
        Entity(tuple(random_mention(chance, sentences) for _ in range(chance.randint(1, 3))))
        for _ in range(chance.randint(0, 4))
    )
    facts = tuple(Fact(*fact) for fact in random_facts(chance, len(entities)))
    return Document(title, sentences, entities, facts)


def random_mention(chance: random.Random, sentences) -> Mention:
    sentence = chance.randrange(len(sentences))
    start = chance.randrange(len(sentences[sentence]))
    return Mention(chance.choice(NAMES), "PER", sentence, start, chance.randint(start + 1, len(sentences[sentence])))


def random_facts(chance: random.Random, entities: int) -> list[tuple[int, str, int]]:
    count = chance.randint(0, 8) if entities else 0
    return [(chance.randrange(entities), chance.choice(RELATIONS), chance.randrange(entities)) for _ in range(count)]


def random_predictions(chance: random.Random, documents) -> list[Prediction]:
    made = [
        Prediction(document.title, *fact)
        for document in documents
        for fact in (
            *random_facts(chance, len(document.entities)),
            *((fact.head, fact.relation, fact.tail) for fact in document.facts if chance.random() < 0.5),
        )
    ]
    chance.shuffle(made)
    return made


def random_train_facts(chance: random.Random) -> list[tuple[str, str, str]]:
    names = (*NAMES, "Dan")
    count = chance.randint(0, 12)
    return [(chance.choice(names), chance.choice(names), chance.choice((*RELATIONS, "s"))) for _ in range(count)]


def random_chains(chance: random.Random) -> list[Chain]:
    return [
        Chain(
            chance.choice(RELATIONS),
            tuple(Step(chance.choice(RELATIONS), chance.random() < 0.5) for _ in range(chance.randint(1, 3))),
        )
        for _ in range(chance.randint(1, 4))
    ]


def gold_predictions(documents) -> list[Prediction]:
    return [
        Prediction(document.title, fact.head, fact.relation, fact.tail)
        for document in documents
        for fact in document.facts
    ]


class Plain:
    """The figures of predictions, by sets and loops."""

    def __init__(self, predictions, documents, train_facts=()) -> None:
        self.documents = {document.title: document for document in documents}
        self.gold = set(gold_predictions(documents))
        self.given = set(predictions)
        self.correct = self.gold & self.given
        self.train = set(train_facts)

    def known(self, fact: Prediction) -> bool:
        entities = self.documents[fact.title].entities
        for head in entities[fact.head].mentions:
            for tail in entities[fact.tail].mentions:
                if (head.name, tail.name, fact.relation) in self.train:
                    return True
        return False

    def figures(self, keep=lambda fact: True) -> dict[str, float]:
        gold, given, correct = ([fact for fact in facts if keep(fact)] for facts in self.sets())
        new_gold, new_correct = ([fact for fact in facts if not self.known(fact)] for facts in (gold, correct))
        counted = [fact for fact in given if fact not in correct or not self.known(fact)]
        precision, recall = ratio(len(correct), len(given)), ratio(len(correct), len(gold))
        return {
            "wanted": len(gold),
            "given": len(given),
            "correct": len(correct),
            "precision": precision,
            "recall": recall,
            "f1": harmonic_mean(precision, recall),
            "ign_f1_docred": harmonic_mean(ratio(len(new_correct), len(counted)), recall),
            "ign_f1_logire": harmonic_mean(precision, ratio(len(new_correct), len(new_gold))),
        }

    def sets(self):
        return self.gold, self.given, self.correct

    def rule(self, chain: Chain, *, skip_loops: bool) -> tuple[int, int, int]:
        """Return pairs, satisfied pairs and groundings."""
        groundings = 0
        pairs = set()
        for title, document in self.documents.items():
            for places in itertools.product(range(len(document.entities)), repeat=len(chain.steps) + 1):
                if skip_loops and places[0] == places[-1]:
                    continue
                body = (
                    Prediction(title, *((b, s.relation, a) if s.inverse else (a, s.relation, b)))
                    for s, a, b in zip(chain.steps, places, places[1:], strict=False)
                )
                if all(fact in self.given for fact in body):
                    groundings += 1
                    pairs.add(Prediction(title, places[0], chain.head, places[-1]))
        return len(pairs), len(pairs & self.given), groundings

    def logic(self, chains, *, skip_loops: bool = False) -> float | None:
        counts = [self.rule(chain, skip_loops=skip_loops) for chain in chains]
        shares = [satisfied / pairs for pairs, satisfied, _ in counts if pairs]
        return sum(shares) / len(shares) if shares else None

    def distance(self, fact: Prediction, unit: str) -> int:
        document = self.documents[fact.title]
        ends = (document.entities[fact.head].mentions, document.entities[fact.tail].mentions)
        return min(gap(document, first, second, unit) for first, second in itertools.product(*ends))


def gap(document: Document, first: Mention, second: Mention, unit: str) -> int:
    if unit == "sentences":
        return abs(first.sentence - second.sentence)
    tokens = [(number, place) for number, sentence in enumerate(document.sentences) for place in range(len(sentence))]
    spans = [
        [tokens.index((mention.sentence, place)) for place in range(mention.start, mention.end)]
        for mention in (first, second)
    ]
    if unit == "starts":
        return abs(spans[0][0] - spans[1][0])
    if set(spans[0]) & set(spans[1]):
        return 0
    left, right = sorted(spans)
    return len(range(left[-1] + 1, right[0]))


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def harmonic_mean(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
