"""Answering one query: the best candidates, with the rules that speak for them and the facts these rest on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from rulewright.checks import Whole, check_parameter
from rulewright.data import Domain, KnowledgeBase, signature
from rulewright.data.index import Ids
from rulewright.engine import StoredFacts, use_engine
from rulewright.engine.batches import Derivation, Source
from rulewright.engine.sql import SQLEngine
from rulewright.engine.walks import Evidence
from rulewright.errors import DataError
from rulewright.logic import (
    Atom,
    Comparison,
    Formula,
    Head,
    Not,
    Number,
    RuleSet,
    Statement,
    Symbol,
    Template,
    Term,
    Variable,
    WeightedFormula,
    encode_step,
    parse_formula,
    substitute,
)
from rulewright.logic import Literal as LogicLiteral
from rulewright.reason.inferred import AGGREGATION, Aggregation, name_columns
from rulewright.reason.program import Rules, read_formula, read_rule_set
from rulewright.reason.proofs import rule_text
from rulewright.reason.ranking import TIE_BREAK, RuleRanker, find_levels, order_by_levels, pick_best
from rulewright.reason.rule_rows import (
    choose_aggregation,
    declare_predicates,
    find_conclusions,
    find_heads,
    read_rows,
    read_weights,
    split_statement,
    write_table,
)
from rulewright.tables import FrameLibrary, build_frame, html_table

if TYPE_CHECKING:
    from rulewright.reason.calibrate import RankingCalibration

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Answer:
    """A candidate that answers a query: its label, its score and the statements that speak for it, strongest first.

    ``strengths`` has for each reason what it brings: its confidence, or its weight times how true its body is, which
    is negative where it speaks against the candidate; ``numbers`` are those of the statements in their file, from 1.
    ``probability`` is what a calibration makes of the score.
    """

    entity: str
    score: float
    reasons: tuple[Source, ...]
    strengths: tuple[float, ...] = ()
    numbers: tuple[int, ...] = ()
    probability: float | None = None

    def __str__(self) -> str:
        probability = "" if self.probability is None else f"  p {self.probability:.3g}"
        return f"{self.entity}  {self.score:.3g}{probability}"


class Answers(Sequence[Answer]):
    """The answers to a query, best first; see `rank`. ``note`` says what to know of their probabilities."""

    def __init__(
        self,
        query: Atom,
        answers: Sequence[Answer],
        kb: KnowledgeBase,
        aggregation: Aggregation,
        note: str = "",
    ) -> None:
        self.query, self.kb, self.aggregation, self.note = query, kb, aggregation, note
        self._answers = tuple(answers)

    def __len__(self) -> int:
        return len(self._answers)

    def __getitem__(self, index: Any) -> Any:
        return self._answers[index]

    def fact(self, answer: Answer) -> Atom:
        """Return the fact that an answer makes of the query."""
        return Atom(
            self.query.predicate,
            tuple(Symbol(answer.entity) if isinstance(term, Variable) else term for term in self.query.args),
        )

    def premises(self, count: int = 1) -> list[list[tuple[Formula, ...]]]:
        """Return for each answer and each of its first ``count`` reasons the facts that it rests on, of one grounding.

        >>> from rulewright.logic import parse_rules
        >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
        >>> rules = parse_rules("0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).")
        >>> print(*rank(rules, kb, "grandparent_of(ann, X)").premises()[0][0])
        parent_of(ann, bob) parent_of(bob, cid)
        """
        if not self:
            return []
        with use_engine(self.kb) as engine:
            return [
                [ground_statement(reason, self.fact(answer), engine) for reason in answer.reasons[:count]]
                for answer in self
            ]

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the answers as a data frame of pandas or Polars, with the columns of `Inferred.to_frame`, best first.

        >>> from rulewright.logic import parse_rules
        >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
        >>> rules = parse_rules("0.9 :: child_of(X, Y) :- parent_of(Y, X).")
        >>> rank(rules, kb, "child_of(X, ann)").to_frame("polars").rows()
        [('bob', 'child_of', 'ann', 0.9, '0.9 :: child_of(X, Y) :- parent_of(Y, X).')]
        """
        facts = [self.fact(answer) for answer in self]
        args = [tuple(term.value if isinstance(term, Number) else term.name for term in fact.args) for fact in facts]
        is_graph = len(self.query.args) == 2 and not any(isinstance(term, Number) for term in self.query.args)
        columns = name_columns([str(fact.predicate) for fact in facts], args, is_graph=is_graph)
        columns |= {
            "score": [answer.score for answer in self],
            **(
                {"probability": [answer.probability for answer in self]}
                if any(answer.probability is not None for answer in self)
                else {}
            ),
            "rules": ["\n".join(map(str, answer.reasons)) for answer in self],
        }
        return build_frame(columns, library)

    def _repr_html_(self) -> str:
        rows = ((answer.entity, answer.score, " ".join(map(str, answer.reasons))) for answer in self)
        return html_table(["entity", "score", "reasons"], rows, caption=str(self.query))

    def __repr__(self) -> str:
        return f"Answers({self.query}: {', '.join(map(str, self)) or 'none'})"

    def __str__(self) -> str:
        lines = [f"{self.query}: {len(self)} answers" if self else f"{self.query} has no answer"]
        for answer in self:
            lines += [str(answer), *(f"   by {rule_text(reason)}" for reason in answer.reasons)]
        return "\n".join(lines)


def ground_statement(statement: Source, fact: Atom, engine: SQLEngine) -> tuple[Formula, ...]:
    """Return the body of a statement in one grounding that concludes the fact; comparisons are left out."""
    concluded: list[tuple[Head, Sequence[LogicLiteral]]] = []
    if isinstance(statement, WeightedFormula) and statement.kind == "hard":
        derivations: list[Derivation] = []
        read_formula(statement, 0, derivations, [])
        concluded += [(derivation.head, derivation.body) for derivation in derivations]
    else:
        head, alternatives, _ = split_statement(statement, weighted=True)
        concluded += [(head, body) for body in alternatives]
    for head, body in concluded:
        values: dict[Variable, Term] = {}
        for term, value in zip(head.args, fact.args, strict=True):
            if isinstance(term, Variable):
                values[term] = value
        parts = [LogicLiteral(substitute(part.unit, values), part.positive) for part in body]
        if substitute(head, values) != fact:
            continue
        for grounding in engine.cases(fact, parts, limit=1, circular=True):
            facts = [part for part in parts if not isinstance(part.unit, Comparison)]
            return tuple(
                unit if part.positive else Not(unit)
                for part in facts
                for unit in [cast(Atom, substitute(part.unit, grounding))]
            )
    return ()


@runtime_checkable
class RankingModel(Protocol):
    """A fitted learner that ranks, such as `PathMixture`."""

    @property
    def rules_(self) -> RuleSet:
        """The rules that it ranks by."""
        ...

    @property
    def ranker_(self) -> RuleRanker:
        """What ranks on the facts of training."""
        ...


def rank(
    rules: Rules | RankingModel,
    kb: KnowledgeBase,
    query: str | Atom,
    *,
    count: int = 10,
    aggregation: Aggregation | None = None,
    known: bool = False,
    calibration: RankingCalibration | None = None,
) -> Answers:
    """Return the best answers to a query, each with the rules that speak for it.

    A query is ``r(entity, X)`` or ``r(X, entity)``, or ``u(X)`` where ``u`` has one argument. Rules are applied once to
    the facts, without chaining; any rule can speak, and a hard formula that reads as one. ``aggregation`` says how
    those that speak for a candidate make its score (`RuleRanker`): ``max-plus`` is the highest confidence, ties broken
    by the second highest and so on, ``max`` the highest, ``noisy-or`` ``1 − Π(1 − c)``, ``weight`` the sum of weights.
    None chooses ``weight`` where rules carry weights, as those of `PathMixture` do, and else ``max-plus``. Answers that
    are known facts are left out unless ``known``. Of facts that stay in an engine, only the best answers come from it.
    A ``calibration`` (`calibrate_ranking`) adds how probable each answer is.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> rules = parse_rules("0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).")
    >>> print(rank(rules, kb, "grandparent_of(ann, X)"))
    grandparent_of(ann, X): 1 answers
    cid  0.9
       by 0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
    >>> rank(rules, kb, "grandparent_of(X, cid)")[0].entity
    'ann'
    """
    check_parameter("count", count, Whole(1))
    if isinstance(rules, RankingModel):
        rule_set, aggregation = rules.rules_, aggregation or rules.ranker_.aggregation
    else:
        rule_set = read_rule_set(rules)
        aggregation = aggregation or choose_aggregation(rule_set)
    check_parameter("aggregation", aggregation, AGGREGATION)
    kb = declare_predicates(rule_set, kb)
    atom = read_query(query, kb)
    name = str(atom.predicate)
    if calibration is not None and atom.arity != 2:
        raise DataError(f"a calibration is of relations of two entities, and {atom} asks about one; leave it out")
    note = "" if calibration is None else calibration.check_use(aggregation, len(rule_set))
    statements = [statement for statement in rule_set if name in find_conclusions(statement)]
    numbers = {id(statement): number for statement, number in zip(rule_set, rule_set.numbers, strict=True)}
    if isinstance(kb, StoredFacts):
        stored = _rank_stored(statements, kb, atom, count, aggregation, known=known, numbers=numbers)
        return Answers(atom, _add_probabilities(stored, atom, calibration), kb, aggregation, note)
    if atom.arity == 1:
        sources, domain, scores, firings = _score_unary(statements, kb, name, aggregation)
    else:
        sources, domain, scores, firings = _score_binary(statements, kb, atom, aggregation)
    if not known:
        scores = scores.copy()
        scores[_find_known(atom, kb)] = 0.0
    best = domain.start + pick_best(scores[domain.start : domain.start + len(domain)], count)
    candidate, rule, strength = firings
    is_wanted = np.isin(candidate, best) & (strength != 0)
    candidate, rule, strength = candidate[is_wanted], rule[is_wanted], strength[is_wanted]
    reasons: dict[int, dict[int, float]] = defaultdict(dict)
    for position in np.lexsort((rule, -strength)):
        reasons[int(candidate[position])].setdefault(int(rule[position]), float(strength[position]))
    decimals = 8 if aggregation == "max-plus" else 12
    answers = [
        Answer(
            str(domain.labels[index - domain.start]),
            float(round(scores[index], decimals)),
            tuple(sources[rule_index] for rule_index in reasons[index]),
            tuple(reasons[index].values()),
            tuple(numbers[id(sources[rule_index])] for rule_index in reasons[index]),
        )
        for index in best.tolist()
    ]
    return Answers(atom, _add_probabilities(answers, atom, calibration), kb, aggregation, note)


def _add_probabilities(answers: list[Answer], query: Atom, calibration: RankingCalibration | None) -> list[Answer]:
    if calibration is None:
        return answers
    scores = [answer.score for answer in answers]
    asked: Literal["forward", "backward"] = "backward" if isinstance(query.args[0], Variable) else "forward"
    probabilities = calibration.probabilities(str(query.predicate), scores, asked).tolist()
    return [
        replace(answer, probability=probability) for answer, probability in zip(answers, probabilities, strict=True)
    ]


def _rank_stored(
    statements: Sequence[Statement],
    kb: StoredFacts,
    query: Atom,
    count: int,
    aggregation: Aggregation,
    *,
    known: bool,
    numbers: Mapping[int, int],
) -> list[Answer]:
    """Return the best answers to a query, from the engine that has the facts; ``numbers`` by identity of statements."""
    from rulewright.reason.stored_ranking import StoredRanker

    if query.arity == 1:
        raise DataError(
            f"an engine ranks answers to r(entity, X) and r(X, entity), not {query}; apply lists what follows, and "
            "read_facts reads facts that fit into memory"
        )
    ranker = StoredRanker(RuleSet(statements), kb, aggregation=aggregation)
    inverse = isinstance(query.args[0], Variable)
    entity, domain = query.args[1 if inverse else 0], kb.domains[kb.usual_type]
    assert isinstance(entity, Symbol)
    relation = kb.predicate_index(str(query.predicate))
    best = ranker.best([relation], [domain.index_of(entity.name)], [inverse], count, known=known)
    answers = []
    for row, label in enumerate(domain.labels_of(best.entities)):
        speaking = best.rules[best.bounds[row] : best.bounds[row + 1]]
        reasons = tuple(ranker.sources[index] for index in speaking)
        strengths = tuple(ranker.confidences[speaking].tolist())
        found = tuple(numbers[id(reason)] for reason in reasons)
        answers.append(Answer(str(label), float(best.scores[row]), reasons, strengths, found))
    return answers


_Scored = tuple[list[Source], Domain, Scores, tuple[Ids, Ids, Scores]]
"""Statements, the domain of the candidates, a score for every entity, and (candidate, statement, strength)."""


def _score_binary(statements: Sequence[Statement], kb: KnowledgeBase, query: Atom, aggregation: Aggregation) -> _Scored:
    """Score all entities as answers to ``r(entity, X)`` or ``r(X, entity)``."""
    name, inverse = str(query.predicate), isinstance(query.args[0], Variable)
    near, far = (kb.domains[type_name] for type_name in kb.predicate(name).types[:: -1 if inverse else 1])
    entity = query.args[1 if inverse else 0]
    assert isinstance(entity, Symbol)
    asked = near.index_of(entity.name)
    step = encode_step(kb.predicate_index(name), inverse)
    all_rows, graph = read_rows(statements, kb, weighted=aggregation == "weight", asked=(1 if inverse else 0, asked))
    rows = all_rows.get(step, [])
    tables = {step: write_table(step, rows)} if rows else {}
    scores = RuleRanker(kb, tables, aggregation=aggregation, graph=graph).scores(
        name, np.array([asked]), inverse=inverse
    )
    firings = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
    if rows:
        table, weights = tables[step]
        _, candidate, rule, truth = Evidence(graph, table).firings(np.array([asked]))
        firings = candidate, rule, weights[rule] * truth
    return [row.source for row in rows], far, scores[0], firings


def _score_unary(statements: Sequence[Statement], kb: KnowledgeBase, name: str, aggregation: Aggregation) -> _Scored:
    """Score all entities as answers to ``u(X)``."""
    weighted = aggregation == "weight"
    sources: list[Source] = []
    derivations: list[Derivation] = []
    weights: list[float] = []
    for statement in statements:
        assert not isinstance(statement, Template)
        if isinstance(statement, WeightedFormula) and statement.kind == "hard":
            read_formula(statement, len(sources), derivations, [])
            sign = 1.0
        else:
            head, alternatives, sign = split_statement(statement, weighted)
            derivations += [Derivation(head, body, statement, len(sources)) for body in map(tuple, alternatives)]
        sources.append(statement)
        weights.append(read_weights(statement, weighted, sign)[0])
    heads = find_heads([derivation for derivation in derivations if derivation.head.predicate == name], kb)
    parts = [(columns[0], np.full(len(columns[0]), index)) for index, columns in heads.items()]
    empty = np.zeros(0, dtype=np.int64)
    candidate, rule = (
        np.concatenate([empty, *columns]) for columns in (zip(*parts, strict=True) if parts else ((), ()))
    )
    strength = np.asarray(weights, dtype=np.float64)[rule]
    scores = np.zeros(kb.n_entities)
    if aggregation == "max":
        np.maximum.at(scores, candidate, strength)
    elif aggregation == "weight":
        np.add.at(scores, candidate, strength)
    elif aggregation == "noisy-or":
        np.add.at(scores, candidate, -np.log1p(-np.minimum(strength, 1 - 1e-12)))
        scores = -np.expm1(-scores)
    else:
        levels, confidences = find_levels(strength)
        cells, ranks, highest = order_by_levels(candidate, levels)
        scores[cells] = confidences[highest] + TIE_BREAK / 2 * ranks / max(1, len(cells))
    return sources, kb.domains[kb.predicate(name).types[0]], scores, (candidate, rule, strength)


def _find_known(query: Atom, kb: KnowledgeBase) -> Ids:
    """Return the entities that are known to answer a query."""
    declaration, columns = kb.predicate(str(query.predicate)), kb.columns(str(query.predicate))
    is_known = np.ones(len(columns[0]), dtype=bool)
    answers = columns[0]
    for position, term in enumerate(query.args):
        if isinstance(term, Symbol):
            is_known &= columns[position] == kb.domains[declaration.types[position]].index_of(term.name)
        else:
            answers = columns[position]
    return np.asarray(answers[is_known], dtype=np.int64)


def read_query(query: str | Atom, kb: KnowledgeBase) -> Atom:
    """Return a query ``r(entity, X)``, ``r(X, entity)`` or ``u(X)``.

    In text, names need no quotes where they are known: what is the name of an entity is one, also with a capital.
    ``?`` stands for the answer as well as any variable.

    >>> kb = KnowledgeBase.from_triples([("Q42", "P27", "Q145")])
    >>> print(read_query("P27(Q42, X)", kb), read_query("P27(?, Q145)", kb))
    'P27'('Q42', X) 'P27'(X, 'Q145')
    """
    example = next((name for name, declaration in kb.predicates.items() if signature(declaration) == "ee"), "parent_of")
    atom = _parse_query(query, kb, example) if isinstance(query, str) else query
    name = str(atom.predicate)
    letters = signature(kb.predicate(name))
    if letters not in ("e", "ee"):
        raise DataError(f"a query is about a predicate of one or two entities, and {kb.predicate(name)} is another")
    if atom.arity != len(letters):
        raise DataError(f"expected a query such as {example}(ann, X); {name} has {len(letters)} arguments, got {query}")
    wanted = [term for term in atom.args if isinstance(term, Variable)]
    if len(wanted) != 1 or not all(isinstance(term, Variable | Symbol) for term in atom.args):
        shape = f"{example}(ann, X)" if len(letters) == 2 else f"{name}(X)"
        parts = "an entity and a variable" if len(letters) == 2 else "a variable"
        raise DataError(f"a query has {parts} for the answer, such as {shape}, got {query}")
    return atom


def _parse_query(text: str, kb: KnowledgeBase, example: str) -> Atom:
    """Read a query whose names may stand without quotes."""
    opening = text.find("(")
    closing = text.rstrip().rstrip(".").rstrip()
    if opening <= 0 or not closing.endswith(")"):
        raise DataError(f"expected a query such as {example}(ann, X), got {text}")
    name = _unquote(text[:opening].strip())
    if name.startswith("!"):
        raise DataError(f"expected a query such as {example}(ann, X), got {text}")
    types = kb.predicate(name).types
    inside = closing[opening + 1 : -1]
    commas = [position for position, letter in enumerate(inside) if letter == ","]
    if len(types) == 1:
        splits = [[inside]]
    else:  # a name may have a comma in it
        splits = [[inside[:comma], inside[comma + 1 :]] for comma in commas] or [[inside]]
    readings = [
        [_read_term(part.strip(), kb, type_name) for part, type_name in zip(split, types, strict=False)]
        for split in splits
    ]

    def count_known(terms: Sequence[Term]) -> int:
        return sum(
            isinstance(term, Symbol) and type_name in kb.domains and kb.domains[type_name].find(term.name) is not None
            for term, type_name in zip(terms, types, strict=False)
        )

    suiting = [terms for terms in readings if sum(isinstance(term, Variable) for term in terms) == 1]
    chosen = max(suiting or readings, key=count_known)
    named = [position for position, term in enumerate(chosen) if len(str(term)) > 1]
    if len(chosen) == 2 and len(named) == 1 and all(isinstance(term, Variable) for term in chosen):
        # of Q43 and X, what is longer than a letter will have been meant as a name, which is not known
        kb.domains[types[named[0]]].index_of(str(chosen[named[0]]))
    return Atom(name, tuple(chosen))


def _read_term(text: str, kb: KnowledgeBase, type_name: str) -> Term:
    """Read what stands in a query: a name that is known, a variable, or a name that is not known."""
    if text == "?":
        return Variable("X")
    domain = kb.domains.get(type_name)
    if domain is not None and domain.find(text) is not None:
        return Symbol(text)
    if text[:1].isupper() or text[:1] == "_":
        return Variable(text) if text.replace("_", "a").isalnum() else Symbol(text)
    try:
        return Number(float(text))
    except ValueError:
        return Symbol(_unquote(text))


def _unquote(text: str) -> str:
    """Return a name without the quotes that the rule language asks for."""
    if len(text) > 1 and text[0] == text[-1] == "'":
        atom = parse_formula(f"{text}(x)")
        return str(atom.predicate) if isinstance(atom, Atom) else text
    return text
