"""Questions as sparse tables: the candidates that any rule speaks for, and the rules that do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rulewright.engine.walks import Hidden, Ids
from rulewright.learn.ranking_loss import Examples
from rulewright.reason.evidence import Evidence, matched

Floats = npt.NDArray[np.float64]
Columns = Callable[[Ids, npt.NDArray[np.bool_], Ids, Floats], tuple[Ids, Floats]]
"""From question, whether the candidate is its answer, rule and truth of each firing: its column and value."""


@dataclass(frozen=True)
class Questions:
    """Questions ``r(entity, ?)`` with their answers and all answers that are known to be right."""

    relation: int
    entity: Ids
    answer: Ids
    known_row: Ids
    known: Ids

    @classmethod
    def of(cls, relation: int, entity: Ids, answer: Ids, truth: tuple[Ids, Ids]) -> Questions:
        """Ask about some facts, given all true facts of the relation, sorted by the entity asked about."""
        rows, place = matched(entity, truth[0])
        return cls(relation, entity, answer, rows, truth[1][place])

    def __len__(self) -> int:
        return len(self.entity)

    def hidden(self) -> Hidden:
        """Return the questions' own facts, to be hidden from them."""
        return Hidden(self.relation, self.entity, self.answer)


def examples(
    evidence: Evidence,
    questions: Questions,
    columns: Columns,
    width: int,
    first: Floats,
    *,
    hide: bool,
    most: int | None = None,
    block: int = 64,
) -> Examples:
    """Build the table of ``width`` columns that ``columns`` makes of the rules.

    Right answers beside the one asked for are left out. Where ``most`` is given, a question keeps its answer and so
    many other candidates, those that score highest when rules weigh ``first``; the others then count neither as
    candidates nor as silent ones.
    """
    entities, parts, keys = evidence.graph.entities, [], []
    spoken = np.zeros(len(questions))
    weighty = np.flatnonzero(first)
    guide = Evidence(evidence.graph, evidence.table.kept(weighty))
    other = questions.known != questions.answer[questions.known_row]
    other_row, others = questions.known_row[other], questions.known[other]
    for low in range(0, len(questions), block):
        rows = slice(low, min(low + block, len(questions)))
        asked = questions.entity[rows]
        hidden = questions.hidden().part(rows) if hide else None
        wanted = np.ones((len(asked), entities), dtype=bool)
        mine = (other_row >= rows.start) & (other_row < rows.stop)
        left_out = other_row[mine] - low, others[mine]
        if most is not None:
            score = guide.scores(asked, first[weighty], hidden)
            score[left_out] = 0.0
            spoken[rows] = (score > 0).sum(axis=1)
            wanted = _highest(score, most)
        wanted[left_out] = False
        wanted[np.arange(len(asked)), questions.answer[rows]] = True
        row, candidate, rule, truth = evidence.firings(asked, hidden, wanted=wanted)
        place, value = columns(row, candidate == questions.answer[rows][row], rule, truth)
        key = row * entities + candidate
        present = np.zeros(len(asked) * entities, dtype=bool)
        present[key] = True
        if most is None:
            spoken[rows] = present.reshape(-1, entities).sum(axis=1)
        number = np.cumsum(present) - 1
        found = np.flatnonzero(present)
        table = sparse.csr_array((value, (number[key], place)), shape=(len(found), width))
        table.sum_duplicates()
        parts.append(table)
        keys.append(found + low * entities)
    return _assembled(questions, entities, sparse.csr_array(sparse.vstack(parts)), np.concatenate(keys), spoken)


def _highest(score: Floats, most: int) -> npt.NDArray[np.bool_]:
    """Tell which candidates are among the ``most`` highest of their question, and score above nothing."""
    found: npt.NDArray[np.bool_] = score > 0
    row, place = np.nonzero(found)
    value = score[row, place]
    order = np.lexsort((-value, row))
    counts = np.bincount(row, minlength=len(score))
    crowded = np.flatnonzero(counts > most)
    bound = np.zeros(len(score))
    bound[crowded] = value[order[(np.cumsum(counts) - counts)[crowded] + most - 1]]
    low = value < bound[row]
    found[row[low], place[low]] = False
    return found


def _assembled(questions: Questions, entities: int, features: sparse.csr_array, keys: Ids, spoken: Floats) -> Examples:
    count = len(questions)
    question = keys // entities
    wanted = np.arange(count) * entities + questions.answer
    own = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    answered = keys[own] == wanted if len(keys) else np.zeros(count, dtype=bool)
    others = np.bincount(questions.known_row[questions.known != questions.answer[questions.known_row]], minlength=count)
    silent = np.maximum(entities - others - spoken, 0)
    return Examples(features, np.searchsorted(question, np.arange(count + 1)), np.where(answered, own, -1), silent)
