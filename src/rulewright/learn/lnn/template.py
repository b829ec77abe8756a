"""Templates of the rule language, resolved against a knowledge base.

    template s(X, Z) :- ?P(X, Y), ?Q(Y, Z) ; ?O(X, Z) where ?P in {a, b}, ?Q in {c}, ?O in *.

Every connective and every predicate variable of a template becomes an operator to be learned. A rule set may hold
several: heads that the facts do not have can stand in other bodies and domains. Plain rules in it define such heads
with connectives that are fixed. A name that the facts have always means those facts, even where it is a head too.
Resolved, a template is a `TemplateProgram`: leaves, frames and heads, each a table of facts, and the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import TypeAlias

from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, unknown_name
from rulewright.logic import (
    NUMBER_TYPE,
    And,
    Atom,
    Comparison,
    Formula,
    Literal,
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
from rulewright.logic.rules import MAX_ALTERNATIVES


@dataclass(frozen=True)
class Look:
    """The truth value of a node's fact, found by the values of variables."""

    node: str
    variables: tuple[Variable, ...]


@dataclass(frozen=True)
class Flip:
    """One minus a truth value."""

    part: Expression


@dataclass(frozen=True)
class Check:
    """A comparison: 0 or 1."""

    comparison: Comparison


@dataclass(frozen=True)
class Gate:
    """A connective; ``checks`` are comparisons that must hold besides, and are no inputs of an operator.

    ``operator`` is None where a conjunction has one part beside its comparisons.
    """

    connective: str
    operator: str | None
    parts: tuple[Expression, ...]
    checks: tuple[Comparison, ...] = ()


Expression: TypeAlias = Look | Flip | Check | Gate


@dataclass(frozen=True)
class Leaf:
    """``?P(X, Y)`` or ``p(X, Y)``: the union of the facts of its members, mixed by an operator where it has a hole.

    ``members`` are predicates of the knowledge base, or names of heads where ``derived`` says so.
    """

    name: str
    unit: Atom | Membership
    columns: tuple[Variable, ...]
    members: tuple[str, ...]
    derived: tuple[bool, ...]
    operator: str | None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The heads among its members."""
        return tuple(member for member, derived in zip(self.members, self.derived, strict=True) if derived)


@dataclass(frozen=True)
class Frame:
    """A body, or an alternative with variables of its own: rows over ``variables``, projected to ``columns``."""

    name: str
    variables: tuple[Variable, ...]
    columns: tuple[Variable, ...]
    expression: Expression

    @property
    def inputs(self) -> tuple[str, ...]:
        """The nodes it looks up."""
        return tuple(look.node for look in find_looks(self.expression))

    def bodies(self) -> list[tuple[Literal, ...]]:
        """Return the conjunctive bodies whose groundings together are all rows that can be true.

        A negated part asks for nothing: its truth value is the rest of one that may be anything.
        """
        bodies = [frozenset(body) for body in _alternatives(self.expression)]
        smallest = [body for body in dict.fromkeys(bodies) if not any(other < body for other in bodies)]
        return [tuple(sorted(body, key=str)) for body in smallest]


@dataclass(frozen=True)
class HeadNode:
    """A predicate that clauses define; where there are several an operator joins them."""

    name: str
    columns: tuple[Variable, ...]
    clauses: tuple[str, ...]
    operator: str | None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Its clauses."""
        return self.clauses


Node: TypeAlias = Leaf | Frame | HeadNode


@dataclass(frozen=True)
class Neuron:
    """An operator to be made: ``pred``, ``and`` or ``or``, with names for its inputs; fixed in plain rules.

    ``label`` is its name within the statement it stands in, at position ``statement``.
    """

    operation: str
    inputs: tuple[str, ...]
    learned: bool
    label: str
    statement: int


def find_parts(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all its parts, from left to right."""
    yield expression
    match expression:
        case Flip(part):
            yield from find_parts(part)
        case Gate(parts=parts):
            for part in parts:
                yield from find_parts(part)


def find_looks(expression: Expression) -> list[Look]:
    """Return what an expression looks up, from left to right."""
    return [part for part in find_parts(expression) if isinstance(part, Look)]


def _alternatives(expression: Expression) -> list[tuple[Literal, ...]]:
    match expression:
        case Look(node, variables):
            return [(Literal(Atom(node, variables)),)]
        case Flip():
            return [()]
        case Check(comparison):
            return [(Literal(comparison),)]
    parts = [_alternatives(part) for part in expression.parts]
    if expression.connective == "or":
        return list(chain.from_iterable(parts))
    checks = tuple(Literal(check) for check in expression.checks)
    bodies = []
    for choice in product(*parts):
        bodies.append((*chain.from_iterable(choice), *checks))
        if len(bodies) > MAX_ALTERNATIVES:
            raise DataError(f"a template with more than {MAX_ALTERNATIVES} alternatives when multiplied out; split it")
    return bodies


@dataclass(frozen=True)
class TemplateProgram:
    """A template made ready for a knowledge base: its nodes, each after those it looks up, and its operators.

    ``types`` has the types of every node's columns; ``root`` is the node whose facts are predicted.
    """

    target: str
    root: str
    nodes: Mapping[str, Node]
    types: Mapping[str, tuple[str, ...]]
    neurons: Mapping[str, Neuron]

    def reaches(self, name: str, predicates: frozenset[str]) -> bool:
        """Tell whether a node's truth values rest on facts of some predicates."""
        node = self.nodes[name]
        if isinstance(node, Leaf):
            members = zip(node.members, node.derived, strict=True)
            if any(name in predicates and not derived for name, derived in members):
                return True
        return any(self.reaches(below, predicates) for below in node.inputs)

    def is_fixed(self, name: str) -> bool:
        """Tell whether a node's truth values depend on nothing that is learned."""
        node = self.nodes[name]
        if isinstance(node, Frame):
            keys = [part.operator for part in find_parts(node.expression) if isinstance(part, Gate)]
        else:
            keys = [node.operator]
        is_learned = any(key is not None and self.neurons[key].learned for key in keys)
        return not is_learned and all(map(self.is_fixed, node.inputs))


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
            self._note_types(clause.head, str(clause.head.predicate))
        for unit in units:
            hole = unit.predicate
            if not isinstance(hole, PredicateVariable):
                self._note_types(unit, hole)
            elif isinstance(unit, Membership):
                raise DataError(f"{unit}: a predicate variable stands for predicates without classes")
            elif (names := given[hole]) is not None:
                self._chosen[hole] = names
                for name in names:
                    self._note_types(unit, name)
        for unit in units:
            if isinstance(unit.predicate, PredicateVariable) and unit.predicate not in self._chosen:
                self._chosen[unit.predicate] = self._find_fitting(unit, unit.predicate)
        for unit in units:
            if isinstance(unit.predicate, PredicateVariable):
                for name in self._chosen[unit.predicate]:
                    self._note_types(unit, name)

    def members(self, unit: Atom | Membership) -> tuple[str, ...]:
        """Return the predicates that an atom can stand for; its own where it has one."""
        if isinstance(unit.predicate, PredicateVariable):
            return self._chosen[unit.predicate]
        return (unit.predicate,)

    def _note_types(self, unit: Atom | Membership, name: str) -> None:
        if name in self.kb.predicates:
            declaration = self.kb.predicates[name]
            if (declaration.classes is not None) != isinstance(unit, Membership):
                how = "is multi-class; write 'in {…}'" if declaration.classes else "is not multi-class"
                raise DataError(f"{name} {how}: {unit} in the template of {self.clause.head}")
            types = declaration.types
        elif name in self.heads:
            types = self.types_of_head(name)
        else:
            raise unknown_name("predicate", name, {*self.kb.predicates, *self.heads})
        if len(types) != len(unit.args):
            raise DataError(f"{name} has {len(types)} arguments and cannot be {unit} of the template")
        for term, type_name in zip(unit.args, types, strict=True):
            if isinstance(term, Variable) and self.types.setdefault(term, type_name) != type_name:
                raise DataError(
                    f"{term} of the template of {self.clause.head} has type {self.types[term]} elsewhere "
                    f"and type {type_name} where {unit} is {name}; list only predicates of one type"
                )

    def _find_fitting(self, unit: Atom | Membership, hole: PredicateVariable) -> tuple[str, ...]:
        arity = len(unit.args)
        plain = {name: declared.types for name, declared in self.kb.predicates.items() if declared.classes is None}
        fitting = {name: types for name, types in plain.items() if len(types) == arity}
        if not fitting:
            raise DataError(f"{hole} cannot be filled: no predicate of the facts has {arity} arguments, as in {unit}")
        known = [self.types.get(term) if isinstance(term, Variable) else None for term in unit.args]
        typed = {
            name: types
            for name, types in fitting.items()
            if all(wanted in (None, type_name) for wanted, type_name in zip(known, types, strict=True))
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


def read_templates(templates: RuleSet | Template | str) -> RuleSet:
    """Return templates as a rule set: given as one, as a template, or as text."""
    if isinstance(templates, str):
        templates = parse_rules(templates)
    rules = RuleSet([templates]) if isinstance(templates, Template) else templates
    for statement in rules:
        if isinstance(statement, WeightedFormula):
            raise DataError(f"a learner of rules takes templates and rules, and no formula: {statement}")
        args = statement.head.args
        distinct = len(set(args)) == len(args) and all(isinstance(term, Variable) for term in args)
        if isinstance(statement.head, Membership) or not distinct:
            raise DataError(f"a template's head is an atom of different variables, got {statement.head}")
    if not rules.templates:
        raise DataError("there is no template; write: template s(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in *, ?Q in *.")
    return rules


def find_roots(templates: RuleSet) -> tuple[str, ...]:
    """Return the heads of templates that no other statement's body or domain names.

    >>> find_roots(read_templates("template r(X) :- ?P(X) where ?P in {a}. template s(X) :- r(X), b(X)."))
    ('s',)
    """
    used: set[str] = set()
    for statement in templates:
        own = str(statement.head.predicate)  # type: ignore[union-attr]  # read_templates refuses formulas
        named = {str(unit.predicate) for part in statement.body for unit in _units(part)}  # type: ignore[union-attr]
        if isinstance(statement, Template):
            named |= {name for _, names in statement.domains for name in names or ()}
        used |= named - {own}
    return tuple(
        dict.fromkeys(
            str(template.head.predicate) for template in templates.templates if template.head.predicate not in used
        )
    )


def rename_root(templates: RuleSet, root: str, target: str) -> RuleSet:
    """Return the templates with another name for the predicate they are about."""
    renamed = []
    for statement in templates:
        assert not isinstance(statement, WeightedFormula)
        head = Atom(target, statement.head.args) if statement.head.predicate == root else statement.head
        renamed.append(replace(statement, head=head))
    return RuleSet(renamed, closed=templates.closed)


def resolve(templates: RuleSet | Template | str, kb: KnowledgeBase, target: str | None = None) -> TemplateProgram:
    """Resolve every name, type and domain of a template; what cannot work is an error that says why.

    >>> kb = KnowledgeBase.from_facts([("a", "1", "2"), ("b", "1", "2"), ("c", "2", "5")])
    >>> program = resolve("template r(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in {a, b}, ?Q in {c}.", kb)
    >>> [(key, neuron.operation, neuron.inputs) for key, neuron in program.neurons.items()]
    [('0_P', 'pred', ('a', 'b')), ('0_Q', 'pred', ('c',)), ('0_and', 'and', ('?P(X, Y)', '?Q(Y, Z)'))]
    """
    read = read_templates(templates)
    if target is None:
        roots = find_roots(read)
        if len(roots) != 1:
            raise DataError(f"which head is to be learned? the templates define {', '.join(roots) or 'none apart'}")
        (target,) = roots
    resolver = _Resolver(read, kb)
    if target not in resolver.clauses:
        raise unknown_name("head of a template", target, resolver.clauses)
    return TemplateProgram(target, resolver.head(target), resolver.nodes, resolver.types, resolver.neurons)


def _push_negation(formula: Formula, positive: bool = True) -> Formula:
    """Push negation down to atoms; ∧ and ∨ of an operator are each other's duals, so that nothing changes."""
    match formula:
        case Not(inner):
            return _push_negation(inner, not positive)
        case And(parts) | Or(parts):
            connective = And if isinstance(formula, And) == positive else Or
            return connective(tuple(_push_negation(part, positive) for part in parts))
        case Comparison() if not positive:
            return formula.opposite()
    return formula if positive else Not(formula)


class _Resolver:
    def __init__(self, templates: RuleSet, kb: KnowledgeBase) -> None:
        self.kb = kb
        self.clauses: dict[str, list[tuple[int, Clause]]] = {}
        for position, statement in enumerate(templates):
            assert not isinstance(statement, WeightedFormula)
            self.clauses.setdefault(str(statement.head.predicate), []).append((position, statement))
        self.nodes: dict[str, Node] = {}
        self.types: dict[str, tuple[str, ...]] = {}
        self.neurons: dict[str, Neuron] = {}
        self.open: list[str] = []

    def head(self, name: str) -> str:
        """Return the node of a head, which is made when it is first asked for."""
        node = f"head {name}"
        if node in self.nodes:
            return node
        if name in self.open:
            raise DataError(f"templates cannot be recursive: {' uses '.join([*self.open, name])}")
        self.open.append(name)
        frames = [self._read_clause(position, clause) for position, clause in self.clauses[name]]
        self.open.pop()
        types = {self.types[frame] for frame in frames}
        if len(types) > 1:
            raise DataError(f"the clauses of {name} are about different types: {' and '.join(map(str, sorted(types)))}")
        columns = tuple(Variable(f"A{position}") for position in range(len(next(iter(types)))))
        operator = None
        if len(frames) > 1:
            first, clause = self.clauses[name][0]
            inputs = tuple(f"clause {position + 1}" for position in range(len(frames)))
            operator = self.add_neuron(Neuron("or", inputs, isinstance(clause, Template), "clauses", first))
        self.nodes[node] = HeadNode(node, columns, tuple(frames), operator)
        self.types[node] = types.pop()
        return node

    def _read_clause(self, position: int, clause: Clause) -> str:
        domains = Domains(clause, self.kb, self.clauses, lambda name: self.types[self.head(name)])
        formula = _push_negation(clause.body[0] if len(clause.body) == 1 else And(clause.body))
        columns = tuple(term for term in clause.head.args if isinstance(term, Variable))
        return _ClauseReader(self, position, clause, domains).frame(formula, columns)

    def add_neuron(self, neuron: Neuron) -> str:
        """Add an operator and return its key."""
        key = f"{neuron.statement}_{neuron.label}"
        self.neurons[key] = neuron
        return key


class _ClauseReader:
    """Turns the body of the statement at a position into nodes."""

    def __init__(self, resolver: _Resolver, position: int, clause: Clause, domains: Domains) -> None:
        self.resolver, self.position, self.clause, self.domains = resolver, position, clause, domains
        self.learned = isinstance(clause, Template)
        self.gates = {"and": 0, "or": 0}
        self.leaves: dict[Atom | Membership, str] = {}

    def frame(self, formula: Formula, columns: tuple[Variable, ...]) -> str:
        expression = self.expression(formula, frozenset(columns))
        seen = dict.fromkeys(variable for look in find_looks(expression) for variable in look.variables)
        name = f"{self.position} frame {len(self.resolver.nodes)}"
        return self._add(Frame(name, tuple(seen), columns, expression))

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
                read = tuple(self._alternative(part, outside) for part in parts)
                return Gate("or", self._gate("or", parts), read)
        raise DataError(f"a template's body has ',' ';' and '!', got {formula}")

    def _conjunction(self, parts: tuple[Formula, ...], outside: frozenset[Variable]) -> Expression:
        checks = tuple(part for part in parts if isinstance(part, Comparison))
        others = [part for part in parts if not isinstance(part, Comparison)]
        if not others:
            return Gate("and", None, (), checks)
        read = []
        for position, part in enumerate(others):
            beside = [*others[:position], *others[position + 1 :], *checks]
            read.append(self.expression(part, outside.union(*map(variables, beside))))
        operator = None if len(others) == 1 else self._gate("and", others)
        return Gate("and", operator, tuple(read), checks) if operator or checks else read[0]

    def _alternative(self, formula: Formula, outside: frozenset[Variable]) -> Expression:
        """Read an alternative; what variables it has for itself are dropped before alternatives are joined."""
        own = variables(formula)
        visible = tuple(variable for variable in own if variable in outside)
        if len(visible) == len(own):
            return self.expression(formula, outside)
        if not visible:
            raise DataError(f"the alternative {formula} shares no variable with the rest of {self.clause.head}'s body")
        return Look(self.frame(formula, visible), visible)

    def _look(self, unit: Atom | Membership) -> Look:
        columns = variables(unit)
        if not columns:
            raise DataError(f"{unit} has no variable; what always or never holds has no place in a template")
        if unit in self.leaves:
            return Look(self.leaves[unit], columns)
        members = self.domains.members(unit)
        derived = tuple(name not in self.resolver.kb.predicates for name in members)
        names = tuple(self.resolver.head(name) if head else name for name, head in zip(members, derived, strict=True))
        operator = None
        if isinstance(unit.predicate, PredicateVariable):
            operator = self.resolver.add_neuron(Neuron("pred", members, True, unit.predicate.name, self.position))
        name = f"{self.position} leaf {len(self.resolver.nodes)}"
        self.leaves[unit] = self._add(Leaf(name, unit, columns, names, derived, operator))
        return Look(name, columns)

    def _gate(self, connective: str, parts: Iterable[Formula]) -> str:
        self.gates[connective] += 1
        label = connective if self.gates[connective] == 1 else f"{connective}{self.gates[connective]}"
        inputs = tuple(map(str, parts))
        return self.resolver.add_neuron(Neuron(connective, inputs, self.learned, label, self.position))

    def _add(self, node: Leaf | Frame) -> str:
        self.resolver.nodes[node.name] = node
        self.resolver.types[node.name] = tuple(self.domains.types[column] for column in node.columns)
        return node.name
