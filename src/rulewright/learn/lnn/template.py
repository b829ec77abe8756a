"""Templates of the rule language, resolved against a knowledge base.

    template s(X, Z) :- ?P(X, Y), ?Q(Y, Z) ; ?O(X, Z) where ?P in {a, b}, ?Q in {c}, ?O in *.

Every connective and every predicate variable of a template becomes an operator to be learned. A rule set may hold
several: heads that the facts do not have can stand in other bodies and domains. Plain rules in it define such heads
with connectives that are fixed. A name that the facts have always means those facts, even where it is a head too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, unknown_name
from rulewright.learn.lnn.nodes import (
    Check,
    Expression,
    Flip,
    Frame,
    Gate,
    HeadNode,
    Leaf,
    Look,
    Neuron,
    Node,
    TemplateProgram,
    looks,
)
from rulewright.logic import (
    NUMBER_TYPE,
    And,
    Atom,
    Comparison,
    Formula,
    Membership,
    Not,
    Or,
    PredicateVariable,
    Rule,
    RuleSet,
    Template,
    Variable,
    WeightedFormula,
    parse_rules,
    variables,
)


class Domains:
    """The domains of one clause's predicate variables, and the ``types`` of its variables.

    ``*`` stands for all predicates of the facts that have the arity and, as far as they are known, the types; where
    nothing is known of a variable, it is no number.
    """

    def __init__(
        self,
        clause: Rule | Template,
        kb: KnowledgeBase,
        heads: Collection[str],
        types_of_head: Callable[[str], tuple[str, ...]],
    ) -> None:
        self.clause, self.kb, self.heads, self.types_of_head = clause, kb, heads, types_of_head
        self.types: dict[Variable, str] = {}
        given = dict(clause.domains) if isinstance(clause, Template) else {}
        self._chosen: dict[PredicateVariable, tuple[str, ...]] = {}
        units = [unit for part in clause.body for unit in _units(part)]
        if str(clause.head.predicate) in kb.predicates:
            self._take(clause.head, str(clause.head.predicate))
        for unit in units:
            hole = unit.predicate
            if not isinstance(hole, PredicateVariable):
                self._take(unit, hole)
            elif isinstance(unit, Membership):
                raise DataError(f"{unit}: a predicate variable stands for predicates without classes")
            elif (names := given[hole]) is not None:
                self._chosen[hole] = names
                for name in names:
                    self._take(unit, name)
        for unit in units:
            if isinstance(unit.predicate, PredicateVariable) and unit.predicate not in self._chosen:
                self._chosen[unit.predicate] = self._all(unit, unit.predicate)
        for unit in units:
            if isinstance(unit.predicate, PredicateVariable):
                for name in self._chosen[unit.predicate]:
                    self._take(unit, name)

    def members(self, unit: Atom | Membership) -> tuple[str, ...]:
        """Return the predicates that an atom can stand for; its own where it has one."""
        if isinstance(unit.predicate, PredicateVariable):
            return self._chosen[unit.predicate]
        return (unit.predicate,)

    def _types_of(self, name: str, unit: Atom | Membership) -> tuple[str, ...]:
        if name in self.kb.predicates:
            declaration = self.kb.predicates[name]
            if (declaration.classes is not None) != isinstance(unit, Membership):
                how = "is multi-class; write 'in {…}'" if declaration.classes else "is not multi-class"
                raise DataError(f"{name} {how}: {unit} in the template of {self.clause.head}")
            return declaration.types
        if name in self.heads:
            return self.types_of_head(name)
        raise unknown_name("predicate", name, {*self.kb.predicates, *self.heads})

    def _take(self, unit: Atom | Membership, name: str) -> None:
        types = self._types_of(name, unit)
        if len(types) != len(unit.args):
            raise DataError(f"{name} has {len(types)} arguments and cannot be {unit} of the template")
        for term, kind in zip(unit.args, types, strict=True):
            if isinstance(term, Variable) and self.types.setdefault(term, kind) != kind:
                raise DataError(
                    f"{term} of the template of {self.clause.head} has type {self.types[term]} elsewhere "
                    f"and type {kind} where {unit} is {name}; list only predicates of one type"
                )

    def _all(self, unit: Atom | Membership, hole: PredicateVariable) -> tuple[str, ...]:
        arity = len(unit.args)
        plain = {name: each.types for name, each in self.kb.predicates.items() if each.classes is None}
        fitting = {name: types for name, types in plain.items() if len(types) == arity}
        if not fitting:
            raise DataError(f"{hole} cannot be filled: no predicate of the facts has {arity} arguments, as in {unit}")
        known = [self.types.get(each) if isinstance(each, Variable) else None for each in unit.args]
        typed = {
            name: types
            for name, types in fitting.items()
            if all(wanted in (None, kind) for wanted, kind in zip(known, types, strict=True))
        }
        if not typed:
            raise DataError(f"{hole} cannot be filled: no predicate has the types of the variables of {unit}")
        if len(set(typed.values())) > 1:  # chains are about entities, unless something says that a variable is a number
            typed = {name: types for name, types in typed.items() if NUMBER_TYPE not in types} or typed
        if len(set(typed.values())) > 1:
            shown = " and ".join(sorted({f"({', '.join(types)})" for types in typed.values()}))
            raise DataError(f"{hole} in * would be about {shown}; list the predicates that {unit} can be")
        return tuple(typed)


def _units(formula: Formula) -> list[Atom | Membership]:
    match formula:
        case Atom() | Membership():
            return [formula]
        case Not(inner):
            return _units(inner)
        case And(parts) | Or(parts):
            return [unit for part in parts for unit in _units(part)]
        case Comparison():
            return []
    raise DataError(f"a template's body has ',' ';' and '!', got {formula}")


Clause = Rule | Template
_Make = Callable[[str], Node]


def read_templates(templates: RuleSet | Template | str) -> RuleSet:
    """Return templates as a rule set: given as one, as a template, or as text."""
    if isinstance(templates, str):
        templates = parse_rules(templates)
    found = RuleSet([templates]) if isinstance(templates, Template) else templates
    for statement in found:
        if isinstance(statement, WeightedFormula):
            raise DataError(f"a learner of rules takes templates and rules, and no formula: {statement}")
        args = statement.head.args
        distinct = len(set(args)) == len(args) and all(isinstance(each, Variable) for each in args)
        if isinstance(statement.head, Membership) or not distinct:
            raise DataError(f"a template's head is an atom of different variables, got {statement.head}")
    if not found.templates:
        raise DataError("there is no template; write: template s(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in *, ?Q in *.")
    return found


def roots(templates: RuleSet) -> tuple[str, ...]:
    """Return the heads of templates that no other statement's body or domain names.

    >>> roots(read_templates("template r(X) :- ?P(X) where ?P in {a}. template s(X) :- r(X), b(X)."))
    ('s',)
    """
    used: set[str] = set()
    for statement in templates:
        own = str(statement.head.predicate)  # type: ignore[union-attr]  # read_templates refuses formulas
        named = {str(each.predicate) for part in statement.body for each in _atoms(part)}  # type: ignore[union-attr]
        if isinstance(statement, Template):
            named |= {name for _, names in statement.domains for name in names or ()}
        used |= named - {own}
    return tuple(
        dict.fromkeys(str(each.head.predicate) for each in templates.templates if each.head.predicate not in used)
    )


def renamed_root(templates: RuleSet, root: str, target: str) -> RuleSet:
    """Return the templates with another name for the predicate they are about."""
    found = []
    for each in templates:
        assert not isinstance(each, WeightedFormula)
        head = Atom(target, each.head.args) if each.head.predicate == root else each.head
        found.append(replace(each, head=head))
    return RuleSet(found, closed=templates.closed)


def resolve(templates: RuleSet | Template | str, kb: KnowledgeBase, target: str | None = None) -> TemplateProgram:
    """Resolve every name, type and domain of a template; what cannot work is an error that says why.

    >>> kb = KnowledgeBase.from_facts([("a", "1", "2"), ("b", "1", "2"), ("c", "2", "5")])
    >>> program = resolve("template r(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in {a, b}, ?Q in {c}.", kb)
    >>> [(key, each.kind, each.inputs) for key, each in program.neurons.items()]
    [('0_P', 'pred', ('a', 'b')), ('0_Q', 'pred', ('c',)), ('0_and', 'and', ('?P(X, Y)', '?Q(Y, Z)'))]
    """
    read = read_templates(templates)
    if target is None:
        found = roots(read)
        if len(found) != 1:
            raise DataError(f"which head is to be learned? the templates define {', '.join(found) or 'none apart'}")
        (target,) = found
    return _Resolver(read, kb).program(target)


def _atoms(formula: Formula) -> Iterable[Atom | Membership]:
    match formula:
        case Atom() | Membership():
            yield formula
        case Not(inner):
            yield from _atoms(inner)
        case And(parts) | Or(parts):
            for each in parts:
                yield from _atoms(each)


def _pushed(formula: Formula, positive: bool = True) -> Formula:
    """Push negation down to atoms; ∧ and ∨ of an operator are each other's duals, so that nothing changes."""
    match formula:
        case Not(inner):
            return _pushed(inner, not positive)
        case And(parts) | Or(parts):
            kind = And if isinstance(formula, And) == positive else Or
            return kind(tuple(_pushed(each, positive) for each in parts))
        case Comparison() if not positive:
            return formula.opposite()
    return formula if positive else Not(formula)


class _Resolver:
    def __init__(self, templates: RuleSet, kb: KnowledgeBase) -> None:
        self.kb = kb
        self.clauses: dict[str, list[tuple[int, Clause]]] = {}
        for number, statement in enumerate(templates):
            assert not isinstance(statement, WeightedFormula)
            self.clauses.setdefault(str(statement.head.predicate), []).append((number, statement))
        self.nodes: dict[str, Node] = {}
        self.types: dict[str, tuple[str, ...]] = {}
        self.neurons: dict[str, Neuron] = {}
        self.heads: dict[str, str] = {}
        self.open: list[str] = []

    def program(self, target: str) -> TemplateProgram:
        if target not in self.clauses:
            raise unknown_name("head of a template", target, self.clauses)
        root = self.head(target)
        return TemplateProgram(target, root, self.nodes, self.types, self.neurons)

    def head(self, name: str) -> str:
        """Return the node of a head, which is made when it is first asked for."""
        if name in self.heads:
            return self.heads[name]
        if name in self.open:
            raise DataError(f"templates cannot be recursive: {' uses '.join([*self.open, name])}")
        self.open.append(name)
        frames = [self._clause(number, each) for number, each in self.clauses[name]]
        self.open.pop()
        kinds = {self.types[each] for each in frames}
        if len(kinds) > 1:
            raise DataError(f"the clauses of {name} are about different types: {' and '.join(map(str, sorted(kinds)))}")
        columns = tuple(Variable(f"A{place}") for place in range(len(next(iter(kinds)))))
        operator = None
        if len(frames) > 1:
            first, clause = self.clauses[name][0]
            inputs = tuple(f"clause {place + 1}" for place in range(len(frames)))
            operator = self._neuron(first, Neuron("or", inputs, isinstance(clause, Template), "clauses", first))
        node = f"head {name}"
        self.nodes[node] = HeadNode(node, columns, tuple(frames), operator)
        self.types[node] = kinds.pop()
        self.heads[name] = node
        return node

    def _clause(self, number: int, clause: Clause) -> str:
        domains = Domains(clause, self.kb, self.clauses, self._head_types)
        formula = _pushed(clause.body[0] if len(clause.body) == 1 else And(clause.body))
        reader = _ClauseReader(self, number, clause, domains)
        columns = tuple(each for each in clause.head.args if isinstance(each, Variable))
        return reader.frame(formula, columns)

    def _head_types(self, name: str) -> tuple[str, ...]:
        return self.types[self.head(name)]

    def _neuron(self, number: int, neuron: Neuron) -> str:
        key = f"{number}_{neuron.label}"
        self.neurons[key] = neuron
        return key


class _ClauseReader:
    """Turns one body into nodes; numbers what it makes."""

    def __init__(self, resolver: _Resolver, number: int, clause: Clause, domains: Domains) -> None:
        self.resolver, self.number, self.clause, self.domains = resolver, number, clause, domains
        self.learned = isinstance(clause, Template)
        self.gates = {"and": 0, "or": 0}
        self.leaves: dict[Atom | Membership, str] = {}

    def frame(self, formula: Formula, columns: tuple[Variable, ...]) -> str:
        expression = self.expression(formula, frozenset(columns))
        seen = dict.fromkeys(each for look in looks(expression) for each in look.variables)
        return self._add(f"{self.number} frame", lambda name: Frame(name, tuple(seen), columns, expression))

    def expression(self, formula: Formula, outside: frozenset[Variable]) -> Expression:
        """Read a formula; variables that ``outside`` does not have are this formula's own."""
        match formula:
            case Comparison():
                return Check(formula)
            case Atom() | Membership():
                return self._look(formula)
            case Not(inner):
                return Flip(self.expression(inner, outside))
            case And(parts):
                return self._conjunction(parts, outside)
            case Or(parts):
                read = tuple(self._alternative(each, outside) for each in parts)
                return Gate("or", self._gate("or", parts), read)
        raise DataError(f"a template's body has ',' ';' and '!', got {formula}")

    def _conjunction(self, parts: tuple[Formula, ...], outside: frozenset[Variable]) -> Expression:
        checks = tuple(each for each in parts if isinstance(each, Comparison))
        others = [each for each in parts if not isinstance(each, Comparison)]
        if not others:
            return Gate("and", None, (), checks)
        read = []
        for place, each in enumerate(others):
            beside = [other for number, other in enumerate(others) if number != place]
            shared = outside.union(*(variables(other) for other in (*beside, *checks)))
            read.append(self.expression(each, shared))
        operator = None if len(others) == 1 else self._gate("and", others)
        return Gate("and", operator, tuple(read), checks) if operator or checks else read[0]

    def _alternative(self, formula: Formula, outside: frozenset[Variable]) -> Expression:
        """Read an alternative; what variables it has for itself are dropped before alternatives are joined."""
        mine = variables(formula)
        visible = tuple(each for each in mine if each in outside)
        if len(visible) == len(mine):
            return self.expression(formula, outside)
        if not visible:
            raise DataError(f"the alternative {formula} shares no variable with the rest of {self.clause.head}'s body")
        return Look(self.frame(formula, visible), visible)

    def _look(self, unit: Atom | Membership) -> Look:
        columns = variables(unit)
        if not columns:
            raise DataError(f"{unit} has no variable; what always or never holds has no place in a template")
        if unit not in self.leaves:
            self.leaves[unit] = self._leaf(unit, columns)
        return Look(self.leaves[unit], columns)

    def _leaf(self, unit: Atom | Membership, columns: tuple[Variable, ...]) -> str:
        members = self.domains.members(unit)
        derived = tuple(each not in self.resolver.kb.predicates for each in members)
        names = tuple(self.resolver.head(each) if head else each for each, head in zip(members, derived, strict=True))
        operator = None
        if isinstance(unit.predicate, PredicateVariable):
            neuron = Neuron("pred", members, True, unit.predicate.name, self.number)
            operator = self.resolver._neuron(self.number, neuron)
        return self._add(f"{self.number} leaf", lambda name: Leaf(name, unit, columns, names, derived, operator))

    def _gate(self, kind: str, parts: Iterable[Formula]) -> str:
        self.gates[kind] += 1
        label = kind if self.gates[kind] == 1 else f"{kind}{self.gates[kind]}"
        return self.resolver._neuron(
            self.number, Neuron(kind, tuple(map(str, parts)), self.learned, label, self.number)
        )

    def _add(self, prefix: str, make: _Make) -> str:
        name = f"{prefix} {len(self.resolver.nodes)}"
        node = make(name)
        self.resolver.nodes[name] = node
        self.resolver.types[name] = tuple(self.domains.types[each] for each in node.columns)
        return name
