"""Hypothesis strategies for every value of the rule language, with names that try to break its text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from rulewright.errors import DataError
from rulewright.logic import (
    And,
    Annotations,
    Atom,
    Comparison,
    Formula,
    Head,
    Iff,
    Implies,
    Membership,
    Not,
    Number,
    Or,
    PredicateDeclaration,
    PredicateVariable,
    Rule,
    RuleSet,
    Statement,
    Symbol,
    Template,
    Term,
    Unit,
    Variable,
    WeightedFormula,
    variables,
)

RESERVED = ("predicate", "closed", "hard", "learn", "template", "where", "in")
HOSTILE_NAMES = (
    *RESERVED,
    *("true", "false", "null", "inner", "hardly", "_", "__", "_1", "_x", "Upper", "X", "P17", "camelCase"),
    *("", " ", "  two  ", "a.b", ".", ". ", "...", "%comment", "% c\n", "a b", "a,b", "@{", ". @{a: 1}", "}", "{a}"),
    *("0", "42", "-3", "3.5", "1e5", "007", "٣", "²", "?P", "*", ":-", "::", "=>", "<=>", "!", "p(X)", "p(X) :- q(X)."),
    *("'", "''", "it's", '"', '"quoted"', "\\", "\\\\", "\\'", "'\\", "\\n", "\\u0041", "\\u", "a\\", "`"),
    *("\n", "\t", "\r", "\r\n", "a\nb", "\x00", "\x01", "\x1b[31m", "\x1c", "\x7f", "\x85", "\x9f", "\u2028", "\u2029"),
    *(
        "été",
        "straße",
        "名前",
        "שלום",
        "مرحبا",
        "\u202eabc",
        "\u2066",
        "\ufeff",
        "😀",
        "👨‍👩‍👧",
        "e\u0301",
        "\u00a0",
        "\ud800",
    ),
    *("/location/country", "in0-x", "B-PER", "http://example.org/a#b", "x" * 300),
)
HOLES = tuple(map(PredicateVariable, ("P", "Q", "O", "_", "Rel_1")))
TYPES = ("person", "number", "in", "Upper case", "")

words = st.from_regex(r"[a-z][A-Za-z0-9_]{0,8}", fullmatch=True)
names = st.one_of(words, st.sampled_from(HOSTILE_NAMES), st.text(max_size=8))
variable_terms = st.sampled_from(("X", "Y", "Z", "A1", "_x", "_1", "_2", "Long_Name")).map(Variable)
symbols = names.map(Symbol)
figures = st.one_of(
    st.integers(-1000, 1000),
    st.integers(-(10**308), 10**308),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from((0.1, 1e22, 1e-300, 5e-324, 1.7976931348623157e308, -0.0, 1e16, 123456789.123)),
)
numbers = figures.map(Number)
terms: st.SearchStrategy[Term] = st.one_of(variable_terms, variable_terms, symbols, numbers)
comparisons = st.builds(Comparison, st.sampled_from(("<", "<=", ">", ">=", "=", "!=")), terms, terms)
confidences = st.one_of(st.just(1.0), st.floats(0, 1))
annotations = st.dictionaries(
    names,
    st.recursive(
        st.one_of(figures, st.booleans(), names),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
).map(Annotations)


@dataclass(frozen=True)
class Vocabulary:
    """The predicates of one rule set, each with its arity and, where it is multi-class, its classes."""

    arities: Mapping[str, int]
    classes: Mapping[str, tuple[str, ...]]

    def plain(self, arity: int) -> list[str]:
        return [name for name, own in self.arities.items() if own == arity and name not in self.classes]


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocabulary:
    of_any_arity = st.dictionaries(names, st.integers(0, 3), min_size=1, max_size=5)
    arities = draw(of_any_arity.filter(lambda drawn: any(drawn.values())))  # propositions alone bind no variable
    some_classes = st.none() | st.lists(names, min_size=2, max_size=4, unique=True).map(tuple)
    drawn = {name: draw(some_classes) for name in arities}
    return Vocabulary(arities, {name: classes for name, classes in drawn.items() if classes is not None})


@st.composite
def heads(draw: st.DrawFn, vocabulary: Vocabulary, args: st.SearchStrategy[Term] = terms) -> Head:
    name = draw(st.sampled_from(sorted(vocabulary.arities)))
    arity = vocabulary.arities[name]
    return _of(draw, vocabulary, name, tuple(draw(st.lists(args, min_size=arity, max_size=arity))))


def _of(draw: st.DrawFn, vocabulary: Vocabulary, name: str, args: tuple[Term, ...]) -> Head:
    atom = Atom(name, args)
    if name not in vocabulary.classes:
        return atom
    some = st.lists(st.sampled_from(vocabulary.classes[name]), min_size=1, unique=True)
    return Membership(atom, tuple(draw(some)))


def units_over(vocabulary: Vocabulary) -> st.SearchStrategy[Unit]:
    return st.one_of(heads(vocabulary), heads(vocabulary), comparisons)


def _parts(inner: st.SearchStrategy[Formula]) -> st.SearchStrategy[tuple[Formula, ...]]:
    return st.lists(inner, min_size=2, max_size=3).map(tuple)


def formulas_over(vocabulary: Vocabulary, leaves: int = 6) -> st.SearchStrategy[Formula]:
    return st.recursive(
        units_over(vocabulary),
        lambda inner: st.one_of(
            inner.map(Not),
            _parts(inner).map(And),
            _parts(inner).map(Or),
            st.builds(Implies, inner, inner),
            st.builds(Iff, inner, inner),
        ),
        max_leaves=leaves,
    )


def body_parts_over(vocabulary: Vocabulary) -> st.SearchStrategy[Formula]:
    return st.recursive(
        units_over(vocabulary),
        lambda inner: st.one_of(inner.map(Not), _parts(inner).map(And), _parts(inner).map(Or)),
        max_leaves=5,
    )


@st.composite
def rules_over(draw: st.DrawFn, vocabulary: Vocabulary) -> Rule:
    """Any body will do: where it leaves variables unbound, atoms that bind them are added."""
    head = draw(heads(vocabulary))
    body = tuple(draw(st.lists(body_parts_over(vocabulary), min_size=1, max_size=4)))
    confidence, notes = draw(confidences), draw(annotations)
    try:
        return Rule(head, body, confidence, notes)
    except DataError:
        binding = _binding(draw, vocabulary, (head, *body))
        return Rule(head, tuple(draw(st.permutations([*body, *binding]))), confidence, notes)


def _binding(draw: st.DrawFn, vocabulary: Vocabulary, formulas: Iterable[Formula]) -> list[Formula]:
    unbound = list(dict.fromkeys(variable for formula in formulas for variable in variables(formula)))
    found: list[Formula] = []
    while unbound:
        name = draw(st.sampled_from(sorted(name for name, arity in vocabulary.arities.items() if arity)))
        arity = vocabulary.arities[name]
        found.append(_of(draw, vocabulary, name, tuple((unbound[:arity] * arity)[:arity])))
        del unbound[:arity]
    return found


@st.composite
def templates_over(draw: st.DrawFn, vocabulary: Vocabulary) -> Template:
    rule = draw(rules_over(vocabulary))
    arities = {hole: draw(st.integers(1, 3)) for hole in draw(st.lists(st.sampled_from(HOLES), unique=True))}
    found = [
        Atom(hole, tuple(draw(st.lists(terms, min_size=arity, max_size=arity)))) for hole, arity in arities.items()
    ]
    domains = tuple((hole, _domain(draw, vocabulary, arity)) for hole, arity in arities.items())
    body = (*rule.body, *found)
    return Template(rule.head, body, tuple(draw(st.permutations(domains))), rule.annotations)


def _domain(draw: st.DrawFn, vocabulary: Vocabulary, arity: int) -> tuple[str, ...] | None:
    known = vocabulary.plain(arity)
    if not known or draw(st.booleans()):
        return None
    return tuple(draw(st.lists(st.sampled_from(known), min_size=1, unique=True)))


@st.composite
def weighted_over(draw: st.DrawFn, vocabulary: Vocabulary) -> WeightedFormula:
    kind = draw(st.sampled_from(("soft", "hard", "learn")))
    weight = draw(figures) if kind == "soft" else None
    return WeightedFormula(draw(formulas_over(vocabulary)), kind, weight, draw(annotations))


def statements_over(vocabulary: Vocabulary) -> st.SearchStrategy[Statement]:
    return st.one_of(rules_over(vocabulary), weighted_over(vocabulary), templates_over(vocabulary))


@st.composite
def rule_sets(draw: st.DrawFn) -> RuleSet:
    vocabulary = draw(vocabularies())
    declared = draw(st.lists(st.sampled_from(sorted(vocabulary.arities)), unique=True))
    predicates = [_declaration(draw, vocabulary, name) for name in declared]
    closed = draw(st.lists(names, max_size=2))
    return RuleSet(draw(st.lists(statements_over(vocabulary), max_size=4)), predicates=predicates, closed=closed)


def _declaration(draw: st.DrawFn, vocabulary: Vocabulary, name: str) -> PredicateDeclaration:
    arity = vocabulary.arities[name]
    types = draw(st.lists(st.sampled_from(TYPES), min_size=arity, max_size=arity))
    return PredicateDeclaration(name, tuple(types), vocabulary.classes.get(name))


atoms = vocabularies().flatmap(heads).map(lambda head: head.atom if isinstance(head, Membership) else head)
memberships = st.builds(Membership, atoms, st.lists(names, min_size=1, max_size=4, unique=True).map(tuple))
formulas = vocabularies().flatmap(formulas_over)
rules = vocabularies().flatmap(rules_over)
templates = vocabularies().flatmap(templates_over)
weighted_formulas = vocabularies().flatmap(weighted_over)
statements = st.one_of(rules, templates, weighted_formulas)
declarations = st.builds(
    PredicateDeclaration,
    names,
    st.lists(names, max_size=3).map(tuple),
    st.none() | st.lists(names, min_size=2, max_size=4, unique=True).map(tuple),
)


def small_atoms(predicates: Mapping[str, int], args: Iterable[Term]) -> st.SearchStrategy[Atom]:
    """Atoms over few predicates and terms, so that structures repeat and brute force is possible."""
    pool = st.sampled_from(tuple(args))
    return st.sampled_from(sorted(predicates)).flatmap(
        lambda name: st.tuples(*[pool] * predicates[name]).map(lambda chosen: Atom(name, chosen))
    )
