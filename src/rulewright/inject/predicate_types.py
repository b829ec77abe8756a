"""The types of predicates: as declared, or found from the variables that their arguments share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rulewright.errors import DataError
from rulewright.logic import Comparison, Formula, Membership, PredicateDeclaration, Variable, units

ENTITY = "entity"
"""The type of all arguments that no declaration reaches, where they are of one type."""

_Place = tuple[str, int]


def typed_predicates(
    formulas: Iterable[Formula], declared: Iterable[PredicateDeclaration]
) -> dict[str, PredicateDeclaration]:
    """Return a declaration for every predicate of the formulas and every declared one.

    Arguments that share a variable are of one type. What no declaration reaches is an ``entity``, or named by the
    predicate and position where it first occurs, such as ``likes/2``, where there are several such types.

    >>> from rulewright.logic import parse_formula
    >>> found = typed_predicates([parse_formula("smokes(X) & friend(X, Y) => smokes(Y)")], [])
    >>> [str(each) for each in found.values()]
    ['predicate smokes(entity).', 'predicate friend(entity, entity).']
    """
    known = {each.name: each for each in declared}
    types = _Types(known)
    arities: dict[str, int] = {each.name: each.arity for each in known.values()}
    for formula in formulas:
        places: dict[Variable, _Place] = {}
        equal: list[Comparison] = []
        for unit in units(formula):
            if isinstance(unit, Comparison):
                equal.append(unit)
                continue
            name = str(unit.predicate)
            if isinstance(unit, Membership) and (name not in known or known[name].classes is None):
                raise DataError(f"{name} is multi-class; declare its classes in order: predicate {name}(…) in {{…}}.")
            arities.setdefault(name, len(unit.args))
            for position, term in enumerate(unit.args):
                types.root((name, position))
                if isinstance(term, Variable):
                    types.join(places.setdefault(term, (name, position)), (name, position), formula)
        for comparison in equal:
            sides = [places[term] for term in comparison.args if isinstance(term, Variable) and term in places]
            if len(sides) == 2 and comparison.operator in ("=", "!="):
                types.join(sides[0], sides[1], formula)
    names = types.names()
    return {
        name: known.get(name) or PredicateDeclaration(name, tuple(names[name, place] for place in range(arity)))
        for name, arity in arities.items()
    }


class _Types:
    """Arguments of predicates in classes, each with at most one declared type."""

    def __init__(self, declared: Mapping[str, PredicateDeclaration]) -> None:
        self._parent: dict[_Place, _Place] = {}
        self._type: dict[_Place, str] = {}
        first: dict[str, _Place] = {}
        for each in declared.values():
            for position, kind in enumerate(each.types):
                place = (each.name, position)
                self._parent[place] = first.setdefault(kind, place)
                self._type[first[kind]] = kind

    def root(self, place: _Place) -> _Place:
        parent = self._parent.setdefault(place, place)
        if parent != place:
            parent = self._parent[place] = self.root(parent)
        return parent

    def join(self, one: _Place, other: _Place, formula: Formula) -> None:
        left, right = self.root(one), self.root(other)
        if left == right:
            return
        if left in self._type and right in self._type:
            raise DataError(
                f"argument {one[1] + 1} of {one[0]} is a {self._type[left]} and argument {other[1] + 1} of {other[0]} "
                f"a {self._type[right]}, but a variable stands for both in: {formula}"
            )
        if right in self._type:
            left, right = right, left
        self._parent[right] = left

    def names(self) -> dict[_Place, str]:
        open_roots = list(dict.fromkeys(root for root in map(self.root, self._parent) if root not in self._type))
        taken = set(self._type.values())
        if len(open_roots) == 1 and ENTITY not in taken:
            named = {open_roots[0]: ENTITY}
        else:
            named = {root: f"{root[0]}/{root[1] + 1}" for root in open_roots}
        return {place: self._type.get(root) or named[root] for place in self._parent for root in [self.root(place)]}
