"""Candidate atoms: those of a predicate that a call gives or observes one by one; all others rest.

``logits[p]`` is ``(index, logits)`` and ``evidence[p]`` ``(index, values)``, with ``index`` a ``[n, arity]`` tensor of
entity indices. An atom in neither *rests*: it keeps the probability that `rest` gives it, gets no message, and counts
in all groundings. Where a predicate is dense, all its atoms are candidates; a predicate that is observed everywhere
rests at its most frequent value, and the others are its candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import exp, isnan, prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rulewright.data.index import Ids
from rulewright.errors import DataError, unknown_name
from rulewright.inject.atom_space import AtomSpace, ShapeReader
from rulewright.inject.inputs import (
    Evidence,
    GroundInputs,
    InputShape,
    Observation,
    Observed,
    StoredEvidence,
    join_logits,
)
from rulewright.inject.layer.grounding import FALSE, TRUE
from rulewright.inject.layer.relations import KeyIndex, encode_whole
from rulewright.logic import PredicateDeclaration

SparseLogits: TypeAlias = tuple[Tensor, Tensor]
"""Candidate atoms ``[n, arity]`` and their log-odds, ``[n]`` or ``[n, K]``."""

RestValue: TypeAlias = float | str | Sequence[float] | Tensor
"""Log-odds, which may be infinite; where there are classes one of them, or log-odds of each."""

Rest: TypeAlias = float | Mapping[str, RestValue]
"""What atoms rest at that are no candidates: of all open predicates, or by predicate."""

KEPT_CANDIDATES = 4
"""How many sets of candidates are kept for calls that have the same ones again."""

OPEN = -1
"""The class of a candidate that is not observed."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidate atoms of a predicate, as columns of entity indices; the ``given`` first ones have log-odds.

    ``known`` is the class of an observed atom, `OPEN` of others; ``rest`` the probabilities of the classes of all other
    atoms, None where there are none. Those are ``observed`` themselves where the predicate is observed everywhere.
    """

    columns: tuple[Ids, ...]
    given: int
    known: Ids
    rest: tuple[float, ...] | None
    is_observed: bool = False

    def __len__(self) -> int:
        return len(self.known)

    @property
    def is_open(self) -> bool:
        """Whether any atom of the predicate is a candidate that is not observed."""
        return bool((self.known == OPEN).any())

    def rest_false(self, classes: frozenset[int], *, label: bool = False) -> float:
        """Return how probable it is at rest that a literal of these classes is false; ``label``: 1 or 0."""
        if self.rest is None:
            return 0.0
        if label:
            # A tie is false, and of classes the first, as in the labels of candidates
            return float(max(range(len(self.rest)), key=lambda index: self.rest[index]) not in classes)  # type: ignore[index]
        return sum(probability for index, probability in enumerate(self.rest) if index not in classes)


@dataclass(frozen=True)
class Weighing:
    """How ground clauses weigh in means (`rulewright.inject.layer.averaging`).

    An observed atom of a predicate counts ``odds`` times, 1 where there are none; in a count, the number ``unobserved``
    stands in place of the probability of an atom that is not observed.
    """

    odds: Mapping[str, float] = field(default_factory=dict)
    unobserved: float | None = None

    def rest_false(self, atoms: Candidates, classes: frozenset[int]) -> float:
        """Return what a literal of atoms that rest counts."""
        is_counted = self.unobserved is not None and not atoms.is_observed and atoms.rest is not None
        return float(self.unobserved or 0.0) if is_counted else atoms.rest_false(classes)

    def is_false(self, name: str, known: Ids, classes: frozenset[int]) -> npt.NDArray[np.float64]:
        """Return what literals of observed atoms count."""
        return np.where(np.isin(known, [*classes]), 0.0, self.odds.get(name, 1.0))


@dataclass(frozen=True)
class SparseInputs(GroundInputs):
    """One call over candidate atoms: logits and observations are ``[given]``, or ``[given, K]``.

    ``key`` is equal where candidates, observations and what atoms rest at are.
    """

    candidates: Mapping[str, Candidates] = field(default_factory=dict)
    key: bytes = b""


def is_sparse(logits: object, evidence: object, stored: StoredEvidence) -> bool:
    """Return whether a call gives candidate atoms of any predicate, or observes some that a layer has stored."""
    given = [*logits.values()] if isinstance(logits, Mapping) else []
    observations = stored.join(evidence if isinstance(evidence, Mapping) else None).values()
    return any(isinstance(value, tuple) for value in given) or any(map(is_sparse_evidence, observations))


def is_sparse_evidence(observation: Observation) -> bool:
    """Return whether an observation is (index, values); (values, observed) are of one shape."""
    return (
        isinstance(observation, tuple)
        and len(observation) == 2
        and all(isinstance(part, Tensor) for part in observation)
        and observation[0].ndim == 2
        and observation[1].ndim == 1
    )


class CandidateReader:
    """Reads the inputs of sparse calls, and keeps what it found of the latest ones.

    >>> space = AtomSpace("1.0 p(X) & r(X, Y) => p(Y). closed r.", domains={"entity": 1000})
    >>> logits = {"p": (torch.tensor([[0], [7]]), torch.tensor([1.0, 0.0]))}
    >>> edges = (torch.tensor([[0, 7]]), torch.tensor([True]))
    >>> inputs = CandidateReader(space).read(logits, {"r": edges}, {"p": -3.0})
    >>> [(name, len(atoms), round(atoms.rest[1], 3)) for name, atoms in inputs.candidates.items()]
    [('p', 2, 0.047), ('r', 1, 0.0)]
    """

    def __init__(self, space: AtomSpace) -> None:
        self.space = space
        self._kept: dict[bytes, dict[str, Candidates]] = {}

    def __getstate__(self) -> dict[str, object]:
        """Leave out what is kept: a copy reads its own."""
        return {"space": self.space, "_kept": {}}

    def read(
        self,
        logits: Mapping[str, Tensor | SparseLogits],
        evidence: Evidence,
        rest: Rest | None,
        *,
        sizes: Mapping[str, int] | None = None,
    ) -> SparseInputs:
        """Check what a sparse call is given and bring it into one form; ``sizes`` are those of types not yet known."""
        space = self.space
        space.check_names(logits, evidence)
        for name in rest if isinstance(rest, Mapping) else ():
            if name not in space.predicates:
                raise unknown_name("predicate", name, space.predicates)
        for name in logits:
            if name in space.closed and (name in evidence or name in space.used):
                raise DataError(f"predicate {name} is closed: all its atoms are evidence, those not listed are false")
        sizes = self._read_sizes(logits, evidence, sizes or {})
        flat: dict[str, Tensor] = {}
        for name, value in logits.items():
            if isinstance(evidence.get(name), Tensor):
                continue
            flat[name] = self._read_logits(space.predicates[name], value, sizes)
        dtype, device = join_logits(flat, None)
        key = self._make_key(logits, evidence, rest, sizes)
        if key not in self._kept:
            while len(self._kept) >= KEPT_CANDIDATES:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = {
                name: self._read(name, logits.get(name), evidence.get(name), rest, sizes)
                for name in (*flat, *(name for name in evidence if name not in flat))
            }
        candidates = self._kept[key]
        observed = {}
        for name, value in logits.items():
            known, everywhere = candidates[name].known[: candidates[name].given], evidence.get(name)
            if isinstance(everywhere, Tensor):  # what is asked for is observed
                positions = () if isinstance(value, Tensor) else value[0].unbind(1)
                known = everywhere[positions].reshape(-1).long().cpu().numpy()
            if (known != OPEN).any():
                observed[name] = _observe(space.predicates[name], known, dtype, device)
        closed = frozenset(name for name in candidates if not candidates[name].is_open)
        shape = InputShape(tuple(sorted(sizes.items())), observed=closed)
        promoted = {name: value.to(dtype) for name, value in flat.items()}
        return SparseInputs(promoted, observed, {}, (), sizes, shape, dtype, device, candidates=candidates, key=key)

    def _read_sizes(
        self, logits: Mapping[str, Tensor | SparseLogits], evidence: Evidence, given: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the sizes of types: of domains, or of the predicates that are dense."""
        dense = {name: value for name, value in logits.items() if isinstance(value, Tensor)}
        shapes = ShapeReader(self.space, dense)
        if shapes.batch:
            raise DataError(
                f"sparse inputs have no batch, got logits of the batch {list(shapes.batch)}; give the entities of all "
                "rows one domain, in which their atoms are candidates"
            )
        for name, observation in evidence.items():
            if not is_sparse_evidence(observation):
                shapes.read_evidence(name, observation[0] if isinstance(observation, tuple) else observation)
        sizes = {**given, **{name: size for name, (size, _) in shapes.sizes.items()}}
        for name in (*logits, *evidence):
            for type_name in self.space.predicates[name].types:
                if type_name not in sizes:
                    raise DataError(
                        f"the size of type {type_name} cannot be seen in the candidates of {name}; give it: "
                        f"LogicLayer(…, domains={{{type_name!r}: …}})"
                    )
        return sizes

    def _read_logits(
        self, declaration: PredicateDeclaration, value: Tensor | SparseLogits, sizes: Mapping[str, int]
    ) -> Tensor:
        """Return the logits of all candidates, one after the other."""
        tail = () if declaration.classes is None else (len(declaration.classes),)
        if isinstance(value, Tensor):
            return value.reshape(-1, *tail)
        if len(value) != 2 or not all(isinstance(part, Tensor) for part in value):
            raise DataError(f"logits of {declaration.name} are a tensor, or two: (index, logits)")
        index, logits = value
        check_index(declaration, index, "logits")
        if tuple(logits.shape) != (len(index), *tail):
            raise DataError(
                f"logits of {declaration.name} must have the shape {[len(index), *tail]}, one "
                f"{'row of classes ' if tail else ''}for each candidate, got {list(logits.shape)}"
            )
        return logits

    def _make_key(
        self,
        logits: Mapping[str, Tensor | SparseLogits],
        evidence: Evidence,
        rest: Rest | None,
        sizes: Mapping[str, int],
    ) -> bytes:
        """Return a digest of all but the log-odds."""
        digest = blake2b(digest_size=16)
        given = {name: value if isinstance(value, Tensor) else value[0] for name, value in logits.items()}
        by_predicate = sorted(rest.items()) if isinstance(rest, Mapping) else [("", rest)]
        said = [(name, value.tolist() if isinstance(value, Tensor) else value) for name, value in by_predicate]
        digest.update(repr((sorted(sizes.items()), said, [*given], [*evidence])).encode())
        for value in logits.values():
            digest.update(repr(isinstance(value, Tensor)).encode())
            if not isinstance(value, Tensor):
                _digest(digest, value[0])
        for observation in evidence.values():
            digest.update(repr(isinstance(observation, Tensor)).encode())
            for part in observation if isinstance(observation, tuple) else (observation,):
                _digest(digest, part)
        return digest.digest()

    def _read(
        self,
        name: str,
        value: Tensor | SparseLogits | None,
        observation: Observation | None,
        rest: Rest | None,
        sizes: Mapping[str, int],
    ) -> Candidates:
        """Return the candidates of a predicate."""
        declaration = self.space.predicates[name]
        lengths = [sizes[type_name] for type_name in declaration.types]
        if isinstance(observation, Tensor):
            return _read_observed(declaration, observation, lengths)
        if observation is not None and not is_sparse_evidence(observation):
            values, where = observation
            known = torch.where(where, values.long(), OPEN).reshape(-1).cpu().numpy()
            if isinstance(value, tuple):
                raise DataError(
                    f"logits of {name} are (index, logits), so its evidence is (index, values), got tensors of the "
                    f"shape {list(values.shape)}"
                )
            return Candidates(_all_atoms(lengths), len(known), known, None)
        columns: tuple[Ids, ...] = tuple(np.empty(0, dtype=np.int64) for _ in lengths)
        given = 0
        if isinstance(value, Tensor):
            columns, given = _all_atoms(lengths), prod(lengths)
        elif value is not None:
            columns, given = read_index(declaration, value[0], sizes, "logits"), len(value[0])
        known = np.full(given, OPEN, dtype=np.int64)
        if observation is not None:
            index, values = observation
            check_index(declaration, index, "evidence")
            seen = read_index(declaration, index, sizes, "evidence")
            classes = _read_classes(declaration, values)
            positions = KeyIndex(columns, lengths, given).find_rows(seen, len(index))
            is_given = positions >= 0
            known[positions[is_given]] = classes[is_given]
            columns = tuple(
                np.concatenate([column, more[~is_given]]) for column, more in zip(columns, seen, strict=True)
            )
            known = np.concatenate([known, classes[~is_given]])
        has_rest = len(known) < prod(lengths) and name in self.space.used
        is_observed = name in self.space.closed
        return Candidates(columns, given, known, self._read_rest(declaration, rest) if has_rest else None, is_observed)

    def _read_rest(self, declaration: PredicateDeclaration, rest: Rest | None) -> tuple[float, ...]:
        """Return the probabilities of the classes of atoms that rest."""
        name, classes = declaration.name, declaration.classes
        if name in self.space.closed and classes is None:
            if isinstance(rest, Mapping) and name in rest:
                raise DataError(f"predicate {name} is closed: its atoms rest at false; leave {name} out of rest")
            return (1.0, 0.0)
        value = rest.get(name) if isinstance(rest, Mapping) else rest
        if value is None:
            example = f"{{{name!r}: float('-inf')}}" if classes is None else f"{{{name!r}: {classes[0]!r}}}"
            meaning = "false" if classes is None else classes[0]
            raise DataError(
                f"what do the atoms of {name} rest at that are no candidates? Give rest={example} to hold them "
                f"{meaning}, or log-odds such as their prior"
            )
        return read_rest(declaration, value)


def read_rest(declaration: PredicateDeclaration, value: RestValue) -> tuple[float, ...]:
    """Return the probabilities of classes, [false, true] without, that log-odds or the name of a class mean.

    >>> read_rest(PredicateDeclaration("p", ("t",)), float("-inf"))
    (1.0, 0.0)
    >>> read_rest(PredicateDeclaration("tag", ("t",), ("o", "b")), "o")
    (1.0, 0.0)
    """
    name, classes = declaration.name, declaration.classes
    numbers: Any = value.tolist() if isinstance(value, Tensor) else value
    if classes is None:
        if not _is_number(numbers) or isnan(numbers):
            raise DataError(f"rest of {name} must be log-odds, a number, got {value!r}")
        true = 1 / (1 + exp(-numbers)) if numbers > -700 else 0.0
        return (1 / (1 + exp(numbers)) if numbers < 700 else 0.0, true)
    if isinstance(numbers, str):
        if numbers not in classes:
            raise unknown_name(f"class of {name}", numbers, classes)
        return tuple(float(class_name == numbers) for class_name in classes)
    if not isinstance(numbers, Sequence) or len(numbers) != len(classes) or not all(map(_is_number, numbers)):
        raise DataError(f"rest of {name} must be one of its classes, or {len(classes)} log-odds, got {value!r}")
    highest = max(numbers)
    if isnan(sum(numbers)) or highest == float("inf") or highest == float("-inf"):
        raise DataError(f"rest of {name} must have a finite highest log-odds, or be one of its classes, got {value!r}")
    powers = [exp(number - highest) for number in numbers]
    return tuple(power / sum(powers) for power in powers)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_index(declaration: PredicateDeclaration, index: Tensor, what: str) -> None:
    """Refuse what is no tensor of atoms."""
    if index.is_floating_point() or index.dtype == torch.bool or tuple(index.shape[1:]) != (declaration.arity,):
        raise DataError(
            f"{what} of {declaration}: the index must be a tensor of whole numbers [n, {declaration.arity}], got "
            f"{index.dtype} of the shape {list(index.shape)}"
        )


def read_index(
    declaration: PredicateDeclaration, index: Tensor, sizes: Mapping[str, int], what: str
) -> tuple[Ids, ...]:
    """Return the columns of an index; refuse entities that are not there, and atoms that occur twice."""
    rows = index.detach().cpu().numpy()
    columns = tuple(rows[:, position].astype(np.int64) for position in range(declaration.arity))
    for position, (column, type_name) in enumerate(zip(columns, declaration.types, strict=True)):
        size = sizes[type_name]
        if len(column) and not 0 <= int(column.min()) <= int(column.max()) < size:
            wrong = int(column[(column < 0) | (column >= size)][0])
            raise DataError(
                f"{what} of {declaration.name}: argument {position + 1} must be an entity index below {size:,}, the "
                f"size of type {type_name}, got {wrong}"
            )
    if len(rows) > 1:
        lengths = [sizes[type_name] for type_name in declaration.types]
        fits = prod(lengths) < np.iinfo(np.int64).max
        numbered = None if fits and columns else KeyIndex(columns, lengths, len(rows)).groups.astype(np.int64)
        keys = np.sort(encode_whole(columns, lengths) if numbered is None else numbered)
        if bool((keys[1:] == keys[:-1]).any()):
            raise DataError(f"{what} of {declaration.name}: an atom occurs twice in the index; give each atom once")
    return columns


def _all_atoms(lengths: Sequence[int]) -> tuple[Ids, ...]:
    """Return all atoms over domains of these sizes, in the order of a dense tensor."""
    if not lengths:
        return ()
    return tuple(column.reshape(-1) for column in np.indices(tuple(lengths), dtype=np.int64))


def _read_classes(declaration: PredicateDeclaration, values: Tensor) -> Ids:
    """Return the classes of observed values; of truth values `TRUE` or `FALSE`."""
    if declaration.classes is None:
        if values.dtype != torch.bool:
            raise DataError(f"evidence of {declaration.name} must be boolean, got {values.dtype}")
    elif values.is_floating_point() or values.dtype == torch.bool:
        raise DataError(f"evidence of {declaration.name} must be class indices, got {values.dtype}")
    elif bool(((values < 0) | (values >= len(declaration.classes))).any()):
        raise DataError(f"evidence of {declaration.name} must be class indices below {len(declaration.classes)}")
    classes: Ids = values.detach().cpu().numpy().astype(np.int64)
    return classes


def _read_observed(declaration: PredicateDeclaration, values: Tensor, lengths: Sequence[int]) -> Candidates:
    """Return a predicate that is observed everywhere: its most frequent value rests."""
    classes = _read_classes(declaration, values).reshape(-1)
    count = len(declaration.classes or (FALSE, TRUE))
    frequent = int(np.bincount(classes, minlength=count).argmax())
    rare = np.flatnonzero(classes != frequent)
    columns = np.unravel_index(rare, tuple(lengths)) if lengths else ()
    rest = tuple(float(index == frequent) for index in range(count))
    rows = tuple(column.astype(np.int64) for column in columns)
    return Candidates(rows, 0, classes[rare], rest, is_observed=True)


def _observe(declaration: PredicateDeclaration, known: Ids, dtype: torch.dtype, device: torch.device) -> Observed:
    """Return what is observed of atoms whose classes are known, or `OPEN`."""
    classes = torch.from_numpy(known).to(device)
    where = classes != OPEN
    if declaration.classes is None:
        return Observed((classes == TRUE).to(dtype), where)
    every = torch.arange(len(declaration.classes), device=device)
    return Observed((classes.unsqueeze(-1) == every).to(dtype), where)


def _digest(digest: blake2b, tensor: Tensor) -> None:
    digest.update(repr((tensor.dtype, tuple(tensor.shape))).encode())
    digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).view(np.uint8).data)
