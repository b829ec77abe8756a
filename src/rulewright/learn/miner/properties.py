"""Rules about one entity: what has one property often has another, ``male(X) ← father_of(X, Y)``.

A property of X is a unary fact ``u(X)``, a class ``label(X) in {k}``, an edge to a constant ``r(X, c)`` or ``r(c, X)``,
an edge to anything ``r(X, Y)``, or one to something with a unary fact or a class, ``r(X, Y), u(Y)``. The first three
may be heads. All are columns of one sparse matrix that counts how often each holds of every entity; products of its
columns count all rules at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids, encode_rows, look_up, match_pairs, positions_within
from rulewright.engine.chain_counts import edges
from rulewright.learn.miner.confidence import (
    Counts,
    Floats,
    annotate_counts,
    keep_rows,
)
from rulewright.learn.miner.filters import RuleFilters
from rulewright.logic import (
    Annotations,
    Atom,
    Head,
    Membership,
    Rule,
    Symbol,
    Term,
    Variable,
    count_steps,
    invert_step,
    is_inverse,
    step_relation,
)

NONE = -1
"""Stands in a column where a property has no step, constant, predicate or class."""
MAX_JOINS = 1_000_000_000
"""How many times two properties of one entity may be brought together; beyond it rare constants are left out."""
JOINS_AT_ONCE = 20_000_000
"""How many of them are held at a time."""
MAX_BODIES = 30
"""How many rules about one entity one head may have: more add nothing to its ranking."""
MAX_RULES = 100_000
"""How many rules about one entity there may be in all."""


@dataclass(frozen=True)
class Properties:
    """Properties of entities, as columns; ``holds`` (entities × properties) counts in how many ways each is true.

    ``step`` leads from X to ``constant``, or to anything, of which ``predicate`` (and its class) must hold; without a
    step, ``predicate`` holds of X.
    """

    step: Ids
    constant: Ids
    predicate: Ids
    class_index: Ids
    holds: sparse.csc_array

    def __len__(self) -> int:
        return len(self.step)

    @classmethod
    def of(cls, kb: KnowledgeBase, rows: dict[str, Ids], entities: Ids) -> Properties:
        """Make properties of rows that say of an entity what holds, in which rows may be equal."""
        names = ("step", "constant", "predicate", "class_index")
        sizes = [count_steps(len(kb.predicates)) + 1, kb.n_entities + 1, len(kb.predicates) + 1]
        sizes.append(1 + max([1, *(len(declaration.classes or ()) for declaration in kb.predicates.values())]))
        columns = [np.broadcast_to(rows.get(name, np.int64(NONE)), entities.shape) for name in names]
        keys = encode_rows([column + 1 for column in columns], sizes)
        _, first, index = np.unique(keys, return_index=True, return_inverse=True)
        counts = np.ones(len(entities), dtype=np.int64)
        holds = sparse.csc_array((counts, (entities, index.reshape(-1))), shape=(kb.n_entities, len(first)))
        step, constant, predicate, class_index = (column[first] for column in columns)
        return cls(step, constant, predicate, class_index, holds)

    def select(self, chosen: npt.NDArray[Any]) -> Properties:
        """Return some of the properties."""
        columns = (self.step, self.constant, self.predicate, self.class_index)
        step, constant, predicate, class_index = (column[chosen] for column in columns)
        return Properties(step, constant, predicate, class_index, self.holds[:, chosen])

    def join(self, other: Properties) -> Properties:
        """Return the properties of both."""
        return Properties(
            np.concatenate([self.step, other.step]),
            np.concatenate([self.constant, other.constant]),
            np.concatenate([self.predicate, other.predicate]),
            np.concatenate([self.class_index, other.class_index]),
            sparse.csc_array(sparse.hstack([self.holds, other.holds], format="csc")),
        )

    @property
    def entity_counts(self) -> Ids:
        """Of how many entities each property holds."""
        counts: Ids = np.diff(self.holds.indptr).astype(np.int64)
        return counts

    def entries(self) -> tuple[Ids, Ids, Ids]:
        """Return (entity, property, ways) of all that holds, by property."""
        properties = np.repeat(np.arange(len(self)), np.diff(self.holds.indptr))
        return self.holds.indices.astype(np.int64), properties, self.holds.data

    def write(self, kb: KnowledgeBase, variable: Variable, other: Variable) -> list[tuple[Head, ...]]:
        """Write each property of ``variable`` as atoms; ``other`` is what a step leads to."""
        names = list(kb.predicates)
        written = []
        columns = (self.step.tolist(), self.constant.tolist(), self.predicate.tolist(), self.class_index.tolist())
        for step, constant, predicate, class_index in zip(*columns, strict=True):
            atoms: list[Head] = []
            about = variable
            if step != NONE:
                declaration = kb.predicate(names[step_relation(step)])
                end: Term = other
                if constant != NONE:
                    domain = kb.domains[declaration.types[0 if is_inverse(step) else 1]]
                    end = Symbol(str(domain.labels[constant - domain.start]))
                atoms.append(Atom(declaration.name, (end, variable) if is_inverse(step) else (variable, end)))
                about = other
            if predicate != NONE:
                declaration = kb.predicate(names[predicate])
                atom = Atom(declaration.name, (about,))
                classes = declaration.classes
                atoms.append(atom if classes is None else Membership(atom, (classes[class_index],)))
            written.append(tuple(atoms))
        return written


def find_unary(kb: KnowledgeBase) -> Properties:
    """Return the unary predicates and classes of entities."""
    entities, predicates, classes = [], [], []
    for letters in ("e", "ec"):
        if table := kb.tables().get(letters):
            entities.append(table.columns[0])
            predicates.append(table.predicate)
            classes.append(table.columns[1] if letters == "ec" else np.full(len(table), NONE))
    empty = np.zeros(0, dtype=np.int64)
    entity, predicate, class_index = (
        np.concatenate([empty, *parts]).astype(np.int64) for parts in (entities, predicates, classes)
    )
    return Properties.of(kb, {"predicate": predicate, "class_index": class_index}, entity)


class PropertyCounter:
    """Counts the rules whose head and body are properties of one entity, exactly.

    A grounding in which a body atom is the head atom itself does not count, unless ``circular``. A rule is kept where
    the lower bound of its share of entities is above the share of its head among all entities of the type; and where
    its body names a constant, or says something of where a step leads, above the share of the rule that does not.
    Where head and body name the same constant they are a case of a chain and left to those.
    """

    def __init__(self, kb: KnowledgeBase, filters: RuleFilters) -> None:
        self.kb, self.filters = kb, filters
        self.notes: list[str] = []
        self._unary = find_unary(kb)
        if not filters.unary:
            self._unary = self._unary.select(np.zeros(len(self._unary), dtype=bool))
        self._edges = self._collect_edges()
        step, before, after = self._edges
        relation_facts = np.bincount(step_relation(step), minlength=len(kb.predicates)) // 2
        walked = relation_facts[step_relation(step)] >= filters.min_relation_facts
        if not filters.inverses:
            walked &= is_inverse(step) == 0
        self._anything = Properties.of(kb, {"step": step[walked]}, before[walked])
        constant = self._find_constants(step, before, after)
        is_walked = np.zeros(count_steps(len(kb.predicates)), dtype=bool)
        is_walked[step[walked]] = True
        self._to_constant = constant.select(is_walked[constant.step])
        entity, unary, _ = self._unary.entries()
        position, match = match_pairs(after[walked], entity)
        reached = unary[match]
        rows = {
            "step": step[walked][position],
            "predicate": self._unary.predicate[reached],
            "class_index": self._unary.class_index[reached],
        }
        self._to_unary = Properties.of(kb, rows, before[walked][position])
        self.heads = self._find_heads(constant)

    def _collect_edges(self) -> tuple[Ids, Ids, Ids]:
        facts = self.kb.tables().get("ee")
        if facts is None:
            empty = np.zeros(0, dtype=np.int64)
            return empty, empty, empty
        step, before, after = (column.astype(np.int64) for column in edges(facts).values())
        return step, before, after

    def _find_constants(self, step: Ids, before: Ids, after: Ids) -> Properties:
        """Return the edges to constants that enough entities have, as many as there is time for."""
        may_name = np.full(len(step), self.filters.constants)
        if self.kb.entity_worlds is not None:  # what one world alone has says nothing of another
            may_name &= self.kb.entity_worlds[after] < 0
        found = Properties.of(self.kb, {"step": step[may_name], "constant": after[may_name]}, before[may_name])
        found = found.select(found.entity_counts >= self.filters.min_named_support)
        entity, index, _ = found.entries()
        counts = found.entity_counts
        least = self.filters.min_named_support
        while True:
            kept = counts[index] >= least
            joins = np.bincount(entity[kept], minlength=self.kb.n_entities).astype(np.float64)
            if (joins**2).sum() <= MAX_JOINS:
                break
            least *= 2
        if least > self.filters.min_named_support:
            left_out = int((counts < least).sum())
            self.notes.append(
                f"{left_out:,} of {len(found):,} constants of relations have fewer than {least} facts and are named "
                f"in no rule: they would take more than {MAX_JOINS:,} joins; a higher min_support says which to name"
            )
        return found.select(counts >= least)

    def _find_heads(self, constant: Properties) -> Properties:
        heads = self._unary.join(constant)
        keep = heads.entity_counts >= self.filters.min_support
        if self.filters.targets is not None:
            targets = [self.kb.predicate_index(name) for name in self.filters.targets]
            keep &= np.isin(_find_predicates(heads), targets)
        return heads.select(keep)

    def mine(self) -> list[Rule]:
        """Return the rules that pass the filters, or the best of them; `notes` say what was left out."""
        bodies = self._unary.join(self._to_constant)
        others = self._anything.join(self._to_unary)
        body_count = len(bodies) + len(others)
        if len(self.heads) == 0 or body_count == 0:
            return []
        everything = bodies.join(others)
        plain, counted = bodies.holds.tocsr(), others.holds.tocsr()
        once = counted.copy()
        once.data[:] = 1
        known, known_column = self.find_known()
        known_bodies = (known.T.astype(np.int64) @ sparse.hstack([plain, once])).tocsr()
        body_totals = np.asarray(everything.holds.sum(axis=0)).ravel().astype(np.int64)
        body_pairs = everything.entity_counts
        circular = self._count_circular(everything)
        facts = self.count_head_facts()
        general = _find_rows(everything, everything.step, np.full(body_count, NONE), np.full(body_count, NONE))
        general[(everything.step == NONE) | (general == np.arange(body_count))] = NONE
        head_atoms = self.heads.write(self.kb, Variable("V0"), Variable("V1"))
        body_atoms = everything.write(self.kb, Variable("V0"), Variable("V1"))
        kept: list[Counts] = []
        for block in self._split_heads(plain, counted):
            if kept and self.filters.is_late():
                self.notes.append(
                    f"time was up when rules about one entity were counted for {block.start:,} of "
                    f"{len(self.heads):,} heads"
                )
                break
            members = self.heads.holds[:, block].T.tocsr()
            parts = []
            for matrix, pairs_matrix, start in ((plain, None, 0), (counted, once, len(bodies))):
                product = members @ matrix
                product.sort_indices()
                pairs = product
                if pairs_matrix is not None:
                    pairs = members @ pairs_matrix
                    pairs.sort_indices()
                entries = product.tocoo()
                parts.append((entries.row + block.start, entries.col + start, entries.data, pairs.data))
            head, body, support, support_pairs = (
                np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)
            )
            counts: Counts = {"h": head, "b": body, "support": support, "support_pairs": support_pairs}
            counts |= {"body": body_totals[body], "body_pairs": body_pairs[body], "facts": facts[head]}
            names = (self.heads.constant[head] != NONE) | (everything.constant[body] != NONE)
            counts["named"] = names.astype(np.int64)
            is_known = known_column[head] != NONE
            counts["known_pairs"] = counts["body_pairs"].copy()
            counts["known_pairs"][is_known] = entries_at(known_bodies, known_column[head[is_known]], body[is_known])
            if not self.filters.circular:
                keys, groundings, pairs_gone = circular
                wanted = head * body_count + body
                gone = look_up(wanted, keys, groundings)
                counts["support"] -= gone
                counts["body"] -= gone
                gone = look_up(wanted, keys, pairs_gone)
                for name in ("support_pairs", "body_pairs", "known_pairs"):
                    counts[name] -= gone
            kept.append(keep_rows(counts, self._compare(counts, everything, general)))
        found = {name: np.concatenate([part[name] for part in kept]) for name in kept[0]}
        counts, note = choose_best(found, self.filters)
        self.notes += [note.format("rules about one entity")] if note else []
        confidences = self.filters.confidences(counts).tolist()
        rows = zip(counts["h"].tolist(), counts["b"].tolist(), confidences, annotate_counts(counts), strict=True)
        return [
            Rule(head_atoms[head][0], body_atoms[body], confidence, Annotations(statistics))
            for head, body, confidence, statistics in rows
        ]

    def _split_heads(self, *bodies: sparse.csr_array) -> list[slice]:
        """Cut the heads into blocks whose joins are not too many at once."""
        width = sum(np.diff(matrix.indptr) for matrix in bodies)
        joins = np.cumsum(self.heads.holds.T.astype(np.float64) @ width + 1)
        first = np.unique((joins // JOINS_AT_ONCE).astype(np.int64), return_index=True)[1].tolist()
        return [slice(low, high) for low, high in zip(first, [*first[1:], len(self.heads)], strict=True)]

    def find_known(self) -> tuple[sparse.csc_array, Ids]:
        """Return of which entities a head's predicate says anything (entities × predicates), and each head's column."""
        step, before, _ = self._edges
        forward = is_inverse(step) == 0
        entity, unary, _ = self._unary.entries()
        has_classes = self._unary.class_index[unary] != NONE
        columns = np.concatenate([step_relation(step[forward]), self._unary.predicate[unary[has_classes]]])
        rows = np.concatenate([before[forward], entity[has_classes]])
        shape = (self.kb.n_entities, len(self.kb.predicates))
        known = sparse.csc_array((np.ones(len(rows), dtype=np.int64), (rows, columns)), shape=shape)
        known.data[:] = 1
        heads = self.heads
        column = np.where(heads.class_index == NONE, NONE, heads.predicate)
        is_forward = (heads.step != NONE) & (is_inverse(heads.step) == 0)
        return known, np.where(is_forward, step_relation(heads.step), column)

    def _count_circular(self, bodies: Properties) -> tuple[Ids, Ids, Ids]:
        """Count the groundings in which a body atom is the head atom.

        Returns keys of head and body, the groundings, and the entities of which the body holds in no other way.
        """
        entity, head, _ = self.heads.entries()
        step, constant = self.heads.step[head], self.heads.constant[head]
        unary_entity, unary, _ = self._unary.entries()
        loop_step, before, after = self._edges
        loop = before == after
        loop_step, loop_entity = loop_step[loop], before[loop]
        parts: list[tuple[Ids, Ids, Ids]] = []

        def add(head: Ids, entity: Ids, step: Ids, unary: Ids | None = None) -> None:
            """Note that a body with this step, to anything or to a unary fact, has a circular grounding."""
            predicate = self._unary.predicate[unary] if unary is not None else np.full(len(head), NONE)
            class_index = self._unary.class_index[unary] if unary is not None else np.full(len(head), NONE)
            body = _find_rows(bodies, step, predicate, class_index)
            found = body != NONE
            parts.append((head[found], body[found], entity[found]))

        # r(X, c) ← r(X, Y) with Y = c, and where u(c) also r(X, c) ← r(X, Y), u(Y)
        named = constant != NONE
        add(head[named], entity[named], step[named])
        position, match = match_pairs(constant[named], unary_entity)
        add(head[named][position], entity[named][position], step[named][position], unary[match])
        # r(X, c) ← r(Y, X) with X = Y = c
        own = named & (entity == constant)
        add(head[own], entity[own], invert_step(step[own]))
        position, match = match_pairs(constant[own], unary_entity)
        add(head[own][position], entity[own][position], invert_step(step[own][position]), unary[match])
        # u(X) ← r(X, Y), u(Y) with X = Y
        about = step == NONE
        position, match = match_pairs(entity[about], loop_entity)
        heads = head[about][position]
        unary_of_head = _find_rows(
            self._unary, np.full(len(heads), NONE), self.heads.predicate[heads], self.heads.class_index[heads]
        )
        add(heads, entity[about][position], loop_step[match], unary_of_head)
        heads, body, entities = (np.concatenate(column) for column in zip(*parts, strict=True))
        keys, rows = np.unique(heads * len(bodies) + body, return_inverse=True)
        lost = entries_at(bodies.holds.tocsr(), entities, body) == 1
        groundings = np.bincount(rows.reshape(-1), minlength=len(keys))
        return keys, groundings, np.bincount(rows.reshape(-1), lost, len(keys)).astype(np.int64)

    def _compare(self, counts: Counts, bodies: Properties, general: Ids) -> npt.NDArray[np.bool_]:
        """Tell which rules pass the filters, say something of their own and do better than what they specialise.

        ``general`` has for each body the one that says less.
        """
        head, body = counts["h"], counts["b"]
        filters = self.filters
        keep = filters.pass_counts(counts)
        keep &= (counts["named"] == 0) | (counts["support_pairs"] >= filters.min_named_support)
        same_constant = (self.heads.constant[head] != NONE) & (self.heads.constant[head] == bodies.constant[body])
        same_unary = (self.heads.step[head] == NONE) & (bodies.step[body] == NONE)
        same_unary &= self.heads.predicate[head] == bodies.predicate[body]
        same_unary &= self.heads.class_index[head] == bodies.class_index[body]
        keep &= ~same_constant & ~same_unary
        rows = np.flatnonzero(keep)
        bounds = filters.bounds(keep_rows(counts, rows))
        better = bounds > self.guess_shares()[head[rows]]
        specialises = np.flatnonzero(general[body[rows]] != NONE)
        wanted = head[rows[specialises]] * len(bodies) + general[body[rows[specialises]]]
        is_general = np.isin(body, general)
        shares = np.zeros(len(head))
        is_general &= counts["body"] > 0
        shares[is_general] = counts["support_pairs"][is_general] / counts["body_pairs"][is_general]
        keys = head * len(bodies) + body
        better[specialises] &= bounds[specialises] > look_up(wanted, keys[is_general], shares[is_general])
        keep[rows[~better]] = False
        return keep

    def count_head_facts(self) -> Ids:
        """Return how many facts the predicate of each head has."""
        facts = np.array([self.kb.count(name) for name in self.kb.predicates], dtype=np.int64)
        return facts[_find_predicates(self.heads)]

    def guess_shares(self) -> Floats:
        """Return the share of the entities of its type that each head holds of."""
        starts = np.array([domain.start for domain in self.kb.domains.values()])
        sizes = np.array([len(domain) for domain in self.kb.domains.values()])
        order = np.argsort(starts, kind="stable")
        first_entity = self.heads.holds.indices[self.heads.holds.indptr[:-1]]
        domain = np.searchsorted(starts[order], first_entity, side="right") - 1
        shares: Floats = self.heads.entity_counts / sizes[order][domain]
        return shares


def choose_best(counts: Counts, filters: RuleFilters) -> tuple[Counts, str]:
    """Keep the most confident bodies of each head, and of all rules those that are right most often.

    Where some are left out, the note says how many, with ``{}`` for what they are.
    """
    found = len(counts["h"])
    confidences = filters.confidences(counts)
    order = np.lexsort((-counts["support_pairs"], -confidences, counts["h"]))
    _, sizes = np.unique(counts["h"], return_counts=True)
    chosen = order[positions_within(sizes) < MAX_BODIES]
    strength = counts["support_pairs"][chosen] * confidences[chosen]
    chosen = np.sort(chosen[np.argsort(-strength, kind="stable")[:MAX_RULES]])
    note = ""
    if len(chosen) < found:
        note = (
            f"of {found:,} {{}} the best {len(chosen):,} are kept: at most {MAX_BODIES} for one head, and "
            f"{MAX_RULES:,} in all; a higher min_support or min_confidence leaves fewer to choose from"
        )
    return keep_rows(counts, chosen), note


def _find_predicates(heads: Properties) -> Ids:
    """Return the predicate of each head."""
    return np.where(heads.step == NONE, heads.predicate, step_relation(heads.step))


def _find_rows(properties: Properties, step: Ids, predicate: Ids, class_index: Ids) -> Ids:
    """Return the index of each wanted property, of those that name no constant; `NONE` where there is none."""
    columns = ((properties.step, step), (properties.predicate, predicate), (properties.class_index, class_index))
    sizes = [int(max(have.max(initial=NONE), want.max(initial=NONE))) + 2 for have, want in columns]
    nameless = np.flatnonzero(properties.constant == NONE)
    keys = encode_rows([have[nameless] + 1 for have, _ in columns], sizes)
    return look_up(encode_rows([want + 1 for _, want in columns], sizes), keys, nameless + 1) - 1


def entries_at(matrix: sparse.csr_array, rows: Ids, columns: Ids) -> Ids:
    """Return the entries of a sparse matrix in these rows and columns."""
    if len(rows) == 0:
        return np.zeros(0, dtype=np.int64)
    matrix.sum_duplicates()  # in order, entries are looked up many times faster
    return np.asarray(matrix[rows, columns]).ravel().astype(np.int64)
