"""What looks wrong in rules: in their text, in what they say twice or never, against each other and on facts."""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Literal, TypeAlias, cast

from rulewright.data import KnowledgeBase
from rulewright.data.vocabulary import format_count
from rulewright.engine.sql import Join
from rulewright.errors import DataError, ParseError, UnknownNameError, unknown_name
from rulewright.logic import (
    Atom,
    Comparison,
    Formula,
    Membership,
    PredicateDeclaration,
    Rule,
    RuleSet,
    Statement,
    Symbol,
    Template,
    Variable,
    WeightedFormula,
    cnf,
    hint_at_variable,
    quote,
    substitute,
    subsumes,
    units,
    variables,
)
from rulewright.logic import Literal as SignedUnit
from rulewright.logic.parser import RuleReading, read_statements
from rulewright.logic.tokens import FOREIGN, line_and_column
from rulewright.reason.program import RuleProgram, Rules, read_rule_set

Level = Literal["error", "warning", "note"]
SHOWN = 3
"""How many examples a finding has."""
MOST_RULES = 2_000
"""The most rules whose bodies are tried on the facts."""
MOST_ALIKE = 20
"""The most findings of one kind; a note counts the others."""
MOST_PAIRS = 20_000
"""The most pairs of rules of which one may follow from the other that are compared."""
MOST_LITERALS = 2_000_000
"""The most literals of hard formulas, times predicates, that are searched for contradictions."""


@dataclass(frozen=True)
class Finding:
    """Something to know: an ``error`` must be put right, a ``warning`` may mislead, a ``note`` is as it is.

    What is found in a text of rules has its line and column, and its file where that is known.
    """

    level: Level
    text: str
    examples: tuple[str, ...] = ()
    hint: str = ""
    file: str | None = None
    line: int | None = None
    column: int | None = None

    @property
    def message(self) -> str:
        """What was found, with examples."""
        return self.text + (f": {', '.join(self.examples)}" if self.examples else "")

    def __str__(self) -> str:
        return self.message + (f"; {self.hint}" if self.hint else "")

    def as_record(self) -> dict[str, object]:
        """Return file, line, column, level, message and hint: what editors and other programs read."""
        fields = asdict(self)
        return {name: fields.get(name, self.message) for name in ("file", "line", "column", "level", "message", "hint")}


LEVELS: Mapping[Level, int] = {"error": 0, "warning": 1, "note": 2}
"""The levels, the worst first."""


def check_rules(rules: Rules | str, kb: KnowledgeBase | None = None, *, file: str | None = None) -> tuple[Finding, ...]:
    """Look through rules, or their text, and try them on facts where there are some.

    >>> for finding in check_rules("hard dog(x) => animal(x). 0.9 :: pet(X) :- dog(X), pet(X). cat(X) -> pet(X)."):
    ...     print(finding.line, finding.column, finding.level, finding)
    1 1 warning the name x stands where a variable may be meant; variables start upper-case: write X for a variable
    1 27 warning the rule says nothing: its head stands in its body
    1 67 error found '->'; 'implies' is written '=>'; a formula needs a weight, 'hard' or 'learn' before it, \
a rule ':-' behind its head
    """
    if isinstance(rules, str):
        return tuple(_RuleCheck(read_statements(rules, file=file), kb, file=file, has_text=True).find())
    return tuple(_RuleCheck(read_statements(str(read_rule_set(rules))), kb, file=None, has_text=False).find())


class _RuleCheck:
    """Looks through what was read of a text."""

    def __init__(self, reading: RuleReading, kb: KnowledgeBase | None, *, file: str | None, has_text: bool) -> None:
        self.reading, self.kb, self.file, self.has_text = reading, kb, file, has_text
        self.uses: dict[str, list[int]] = defaultdict(list)  # predicate → where the statements that use it begin
        self.arities: dict[str, int] = {}
        for begin, statement in reading.stated:
            for unit in _units_of(statement):
                if not isinstance(unit, Comparison) and isinstance(unit.predicate, str):
                    self.uses[unit.predicate].append(begin)
                    self.arities.setdefault(unit.predicate, len(unit.args))

    def find(self) -> list[Finding]:
        """Return the findings by line, then those that have none, the worst first."""
        findings = [self._tell_error(error) for error in self.reading.errors]
        for part in (
            self._look_at_names(),
            self._look_at_predicates(),
            self._look_at_meaning(),
            self._look_at_repetitions(),
            _look_at_hard(self),
        ):
            findings += _cap(part)
        if self.kb is not None:
            findings += self._look_at_facts(self.kb)
        last = len(self.reading.text)
        return sorted(findings, key=lambda finding: (finding.line or last, finding.column or 0, LEVELS[finding.level]))

    def tell(
        self, level: Level, text: str, begin: int | None, *, hint: str = "", examples: Iterable[str] = ()
    ) -> Finding:
        """Make a finding about the statement that begins at a position."""
        line, column = None, None
        if self.has_text and begin is not None:
            line, column = line_and_column(self.reading.text, begin)
        elif begin is not None:
            text += f", in: {self.show(begin)}"
        return Finding(level, text, tuple(examples), hint, self.file, line, column)

    def show(self, begin: int) -> str:
        """Name a statement: by its line, or where there is no text by itself."""
        if self.has_text:
            return f"line {line_and_column(self.reading.text, begin)[0]}"
        return next((str(value) for at, value in [*self.reading.stated, *self.reading.declared] if at == begin), "")

    def _tell_error(self, error: ParseError) -> Finding:
        message, _, hint = error.message.partition("; ")
        return Finding("error", message, (), hint, self.file, error.line, error.column)

    def _look_at_names(self) -> Iterator[Finding]:
        """Find constants that look like variables, and predicates that look like connectives."""
        for begin, statement in self.reading.stated:
            found = [unit for unit in _units_of(statement) if not isinstance(unit, Comparison)]
            counts = Counter(term for unit in found for term in {*unit.args} if isinstance(term, Symbol))
            has_variables = any(isinstance(term, Variable) for unit in found for term in unit.args)
            for term, count in counts.items():
                hint, level = hint_at_variable(term), "warning"
                if not hint and not has_variables and count > 1 and quote(term.name) == term.name:
                    hint, level = f"a variable starts upper-case: {term.name[0].upper()}{term.name[1:]}", "note"
                if hint and not self._is_entity(term):
                    text = f"the name {term} stands where a variable may be meant"
                    yield self.tell(cast(Level, level), text, begin, hint=hint)
            for name in dict.fromkeys(str(unit.predicate) for unit in found):
                if name in FOREIGN:
                    yield self.tell(
                        "warning",
                        f"{name} is a predicate here",
                        begin,
                        hint="'not' is written '!', 'and' '&', 'or' '|'",
                    )

    def _is_entity(self, term: Symbol) -> bool:
        domains = () if self.kb is None else self.kb.domains.values()
        return any(domain.find(term.name) is not None for domain in domains)

    def _look_at_predicates(self) -> Iterator[Finding]:
        """Find predicates that are declared and not used, used and not declared, or perhaps misspelt."""
        declared = {declaration.name: begin for begin, declaration in self.reading.declared}
        for name, begin in declared.items():
            if name not in self.uses and not self.reading.errors:
                yield self.tell("note", f"{name} is declared and not used", begin)
        for begin, name in self.reading.closed:
            if name not in self.uses and name not in declared:
                yield self.tell("warning", f"{name} is closed and not used", begin, hint=_suggest(name, self.uses))
        for name, begins in self.uses.items():
            if declared and name not in declared:
                hint = _suggest(name, declared)
                yield self.tell("warning", f"{name} is used and not declared, as others are", begins[0], hint=hint)
            elif not declared and self.kb is None and len(begins) == 1:
                others = [other for other in self.uses if len(self.uses[other]) > 1]
                same = [other for other in others if self.arities[other] == self.arities[name]]
                if hint := _suggest(name, same, cutoff=0.85):
                    yield self.tell("note", f"{name} is used only here", begins[0], hint=hint)

    def _look_at_meaning(self) -> Iterator[Finding]:
        """Find statements that say nothing, bodies that cannot hold, and variables of formulas that stand alone."""
        for begin, statement in self.reading.stated:
            if isinstance(statement, Rule):
                try:
                    bodies = statement.alternatives()
                except DataError:
                    continue
                if all(SignedUnit(statement.head) in body for body in bodies):
                    yield self.tell("warning", "the rule says nothing: its head stands in its body", begin)
                if any(literal.negated() in body for body in bodies for literal in body):
                    yield self.tell("warning", "a body that can never hold: it asks for an atom and its absence", begin)
            elif isinstance(statement, WeightedFormula):
                if _clauses_of(statement.formula) == ():
                    yield self.tell("warning", "the formula says nothing: it always holds", begin)
                found = [*units(statement.formula)]
                counts = Counter(term for unit in found for term in unit.args if isinstance(term, Variable))
                alone = [variable.name for variable, count in counts.items() if count == 1]
                if alone and len(found) > 1:
                    text = f"{format_count(len(alone), 'variable stands', 'variables stand')} once in a formula"
                    hint = "it means: for all; an underscore says that this is meant"
                    alone = [name for name in alone if name[0] != "_"]
                    if alone:
                        yield self.tell("note", text, begin, examples=alone, hint=hint)

    def _look_at_repetitions(self) -> Iterator[Finding]:
        """Find statements that say what others say, and rules that follow from others."""
        first: dict[object, int] = {}
        by_head: dict[str, list[tuple[int, Rule]]] = defaultdict(list)
        for begin, statement in self.reading.stated:
            if isinstance(statement, Template):
                continue
            key = statement.canonical() if isinstance(statement, Rule) else _rename(statement.formula)
            if key in first:
                yield self.tell("warning", f"says what {self.show(first[key])} does", begin)
                continue
            first[key] = begin
            if isinstance(statement, Rule):
                by_head[str(statement.head.predicate)].append((begin, statement))
        pairs = sum(len(rules) * (len(rules) - 1) for rules in by_head.values())
        if pairs > MOST_PAIRS:
            text = f"whether one of {sum(map(len, by_head.values())):,} rules follows from another was not looked for"
            yield self.tell("note", text, None)
            return
        for rules in by_head.values():
            for (begin, one), (other_begin, other) in combinations(rules, 2):
                for general, specific, at, place in (
                    (one, other, begin, other_begin),
                    (other, one, other_begin, begin),
                ):
                    if general.confidence >= specific.confidence and _follows(general, specific):
                        text = f"follows from {self.show(at)}, which asks for less"
                        yield self.tell("warning", text, place, hint="leave it out")
                        break

    def _look_at_facts(self, kb: KnowledgeBase) -> list[Finding]:
        """Find rules that cannot speak of these facts, and what the facts break."""
        findings = []
        stated = [statement for _, statement in self.reading.stated]
        templates = sum(isinstance(statement, Template) for statement in stated)
        if templates:
            findings.append(Finding("note", f"{templates:,} templates wait for a learner", file=self.file))
        concluded = {str(rule.head.predicate) for rule in stated if isinstance(rule, Rule)}
        concluded |= {declaration.name for _, declaration in self.reading.declared}
        unknown = [name for name in self.uses if name not in kb.predicates and name not in concluded]
        for name in unknown[:MOST_ALIKE]:
            text = f"in rules, {unknown_name('predicate', name, kb.predicates)}"
            message, _, hint = text.partition("; ")
            findings.append(self.tell("error", message, self.uses[name][0] if self.has_text else None, hint=hint))
        if len(unknown) > MOST_ALIKE:
            text = f"{len(unknown) - MOST_ALIKE:,} more predicates of the rules have no facts"
            findings.append(self.tell("error", text, None))
        for name, arity in self.arities.items():
            if name in kb.predicates and kb.predicate(name).arity != arity:
                text = f"{name} has {kb.predicate(name).arity} arguments in the facts and {arity} in the rules"
                findings.append(self.tell("error", text, self.uses[name][0] if self.has_text else None))
                unknown.append(name)
        if unknown or self.reading.errors:
            return findings
        usable = [
            statement
            for statement in stated
            if isinstance(statement, Rule) or (isinstance(statement, WeightedFormula) and statement.kind == "hard")
        ]
        try:
            program = RuleProgram.of(
                RuleSet(usable, predicates=(declaration for _, declaration in self.reading.declared)), kb
            )
        except (DataError, UnknownNameError) as error:
            return [*findings, Finding("error", str(error), file=self.file)]
        begins = {statement: begin for begin, statement in self.reading.stated} if self.has_text else {}
        return [*findings, *_try_rules(program, self, begins)]


Unit: TypeAlias = Atom | Membership | Comparison


def _units_of(statement: Statement) -> Iterator[Unit]:
    formulas = [statement.formula] if isinstance(statement, WeightedFormula) else [statement.head, *statement.body]
    for formula in formulas:
        yield from units(formula)


def _suggest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    near = difflib.get_close_matches(name, [other for other in known if other != name], n=1, cutoff=cutoff)
    return f"did you mean {near[0]}?" if near else ""


def _cap(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the first findings of each level, and how many more there are."""
    counts: Counter[Level] = Counter()
    example: dict[Level, Finding] = {}
    for finding in findings:
        counts[finding.level] += 1
        example[finding.level] = finding
        if counts[finding.level] <= MOST_ALIKE:
            yield finding
    for level, count in counts.items():
        if count > MOST_ALIKE:
            yield Finding(level, f"{count - MOST_ALIKE:,} more like the one above", file=example[level].file)


def _clauses_of(formula: Formula) -> Sequence[object] | None:
    try:
        return cnf(formula)
    except DataError:
        return None


def _rename(formula: Formula) -> Formula:
    """Return a formula with its variables named in order, so that two that differ in names alone are equal."""
    return substitute(formula, {name: Variable(f"V{index}") for index, name in enumerate(variables(formula))})


def _follows(general: Rule, specific: Rule) -> bool:
    try:
        return len(specific.body) <= 8 and subsumes(general, specific)
    except DataError:
        return False


# Contradictions. A universal formula that holds over some entities holds over any one of them alone, so what cannot
# hold where each type has one entity cannot hold at all. There a predicate is one proposition, and each class is.

_Proposition: TypeAlias = tuple[str, str]
_Clause: TypeAlias = frozenset[tuple[_Proposition, bool]]


def _look_at_hard(check: _RuleCheck) -> Iterator[Finding]:
    """Find hard formulas that cannot hold together, and predicates of one entity that they leave nothing."""
    declared = {declaration.name: declaration for _, declaration in check.reading.declared}
    by_statement: dict[int, list[_Clause]] = {}
    for begin, statement in check.reading.stated:
        if isinstance(statement, WeightedFormula) and statement.kind == "hard":
            by_statement[begin] = [*_ground_once(statement.formula, declared)]
    always = [
        clause
        for name, declaration in declared.items()
        if declaration.classes is not None
        for clause in (
            frozenset(((name, value), True) for value in declaration.classes),
            *(
                frozenset((((name, one), False), ((name, other), False)))
                for one, other in combinations(declaration.classes, 2)
            ),
        )
    ]
    propositions = {proposition for clauses in by_statement.values() for clause in clauses for proposition, _ in clause}
    propositions |= {
        (name, value) for name, part in declared.items() if name in check.uses for value in part.classes or ()
    }
    literals = sum(len(clause) for clauses in by_statement.values() for clause in clauses)
    if literals * (1 + len(propositions)) > MOST_LITERALS:
        text = f"whether {len(by_statement):,} hard formulas contradict each other was not looked for"
        yield check.tell("note", text, None)
        return

    def find_core(*assumed: _Clause) -> list[int]:
        """Return statements that cannot hold together with what is assumed, none of which can be left out."""
        core = [*by_statement]
        if _is_satisfiable([*always, *assumed, *(clause for begin in core for clause in by_statement[begin])]):
            return []
        for begin in [*core]:
            rest = [other for other in core if other != begin]
            if not _is_satisfiable([*always, *assumed, *(clause for other in rest for clause in by_statement[other])]):
                core = rest
        return core

    core = find_core()
    if core:
        places = ", ".join(map(check.show, core))
        text = "the hard formula can never hold" if len(core) == 1 else f"hard formulas that cannot all hold: {places}"
        yield check.tell("error", text, core[0])
        return
    for name, value in sorted(propositions):
        if check.arities.get(name, 2) > 1:
            continue
        core = find_core(frozenset([((name, value), True)]))
        if len(core) > 1:  # one alone says so by itself
            what = f"{name} in {{{value}}}" if value else name
            places = ", ".join(map(check.show, core))
            yield check.tell("warning", f"{what} can hold of nothing, by {places}", core[0])


def _ground_once(formula: Formula, declared: Mapping[str, PredicateDeclaration]) -> Iterator[_Clause]:
    """Yield the clauses of a formula where every type has one entity; those that name a constant are left out."""
    try:
        clauses = cnf(formula)
    except DataError:
        return
    for clause in clauses:
        literals: set[tuple[_Proposition, bool]] = set()
        for literal in clause.literals:
            unit = literal.unit
            if any(not isinstance(term, Variable) for term in unit.args):
                break
            if isinstance(unit, Comparison):
                if unit.operator != "!=":
                    break  # it holds, or compares numbers
            elif isinstance(unit, Membership):
                classes = getattr(declared.get(str(unit.predicate)), "classes", None)
                if classes is None:
                    break
                chosen = [value for value in classes if (value in unit.classes) == literal.positive]
                literals |= {((str(unit.predicate), value), True) for value in chosen}
            else:
                literals.add(((str(unit.predicate), ""), literal.positive))
        else:
            if not any((proposition, not sign) in literals for proposition, sign in literals):
                yield frozenset(literals)


def _is_satisfiable(clauses: Sequence[_Clause], most_choices: int = 1_000) -> bool:
    """Return whether clauses can hold together, by unit propagation and choices; True where these are too many."""
    by_proposition: dict[_Proposition, list[_Clause]] = defaultdict(list)
    for clause in clauses:
        for proposition, _ in clause:
            by_proposition[proposition].append(clause)
    values: dict[_Proposition, bool] = {}

    def set_all(pending: list[tuple[_Proposition, bool]]) -> list[_Proposition] | None:
        """Set what is pending and what follows; return what was set, None where it contradicts, with nothing set."""
        done: list[_Proposition] = []
        while pending:
            proposition, sign = pending.pop()
            if values.get(proposition, sign) == sign:
                if proposition in values:
                    continue
                values[proposition] = sign
                done.append(proposition)
                for clause in by_proposition[proposition]:
                    if any(values.get(other) == wanted for other, wanted in clause):
                        continue
                    left = [literal for literal in clause if literal[0] not in values]
                    if len(left) == 1:
                        pending.append(left[0])
                    if left:
                        continue
                    break
                else:
                    continue
            for other in done:
                del values[other]
            return None
        return done

    if frozenset() in clauses or set_all([next(iter(clause)) for clause in clauses if len(clause) == 1]) is None:
        return False
    choices: list[tuple[_Proposition, list[_Proposition], bool]] = []  # what was chosen, what followed, tried both
    for _ in range(most_choices):
        open_clauses = (clause for clause in clauses if not any(values.get(other) == sign for other, sign in clause))
        undecided = next(open_clauses, None)
        if undecided is None:
            return True
        proposition, sign = next(literal for literal in undecided if literal[0] not in values)
        done, is_last = set_all([(proposition, sign)]), False
        while done is None:
            if not is_last:
                done, is_last = set_all([(proposition, not sign)]), True
                continue
            if not choices:
                return False
            proposition, undone, is_last = choices.pop()
            sign = values[proposition]
            for other in undone:
                del values[other]
        choices.append((proposition, done, is_last))
    return True


def _try_rules(program: RuleProgram, check: _RuleCheck, begins: Mapping[Statement, int]) -> Iterator[Finding]:
    """Find constraints that the facts break, and bodies that nothing makes true."""
    from rulewright.engine.duckdb import Engine

    kb = program.kb
    missing = sorted(
        {
            f"{term} in {unit}"
            for derivation in program.derivations
            for literal in derivation.body
            if not isinstance(unit := literal.unit, Comparison)
            for term, type_name in zip(unit.args, kb.predicate(str(unit.predicate)).types, strict=True)
            if isinstance(term, Symbol) and type_name in kb.domains and kb.domains[type_name].find(term.name) is None
        }
    )
    if missing:
        text = f"{format_count(len(missing), 'name', 'names')} in bodies of rules that no fact has"
        yield Finding("warning", text, tuple(missing[:SHOWN]))
    idle: list[str] = []
    seen: set[int] = set()
    with Engine(kb) as engine:
        for constraint in program.constraints:
            join = Join(kb)
            join.add_body(constraint.body)
            broken = int(engine.run(join.select("COUNT(*) AS n"))["n"][0])
            if broken:
                times = format_count(broken, "time", "times")
                begin, formula = begins.get(constraint.formula), str(constraint.formula)
                yield check.tell("error", f"the facts break a constraint {times}", begin, examples=[formula])
        for derivation in program.derivations[:MOST_RULES]:
            join = Join(kb)
            try:
                join.add_body(derivation.body)
                holds = len(engine.run(join.select("1 AS one", " LIMIT 1"))["one"])
            except DataError as error:
                yield Finding("error", f"{error} — in: {derivation.source}")
                continue
            if holds:
                seen.add(derivation.source_index)
            elif derivation.source_index not in seen and isinstance(derivation.source, Rule):
                idle.append(f"{derivation.head} :- {', '.join(map(str, derivation.body))}")
    if idle:
        text = f"{format_count(len(idle), 'rule has', 'rules have')} a body that the facts never make true"
        yield Finding("warning", text, tuple(idle[:SHOWN]))
    if len(program.derivations) > MOST_RULES:
        yield Finding("note", f"of {len(program.derivations):,} rules the first {MOST_RULES:,} were tried on the facts")
