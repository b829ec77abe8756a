"""What a rule is: immutable values, their text, and what follows from them without any data.

- `terms`: variables, symbols, numbers, atoms and the formulas built from them
- `rules`: statements: rules, weighted formulas, templates, declarations; `ruleset`: what a ``.rules`` file holds
- `tokens` (by ``grammar.lark``), `parser`: text to values; `hints`: what is told of errors; `printer`: values to text
- `chain`: rules whose body is a path; steps and paths by name and by index
- `clauses`: formulas as clauses, unification; `compare`: substitution, standard form, subsumption
- `english`, `latex`: statements for people and for papers
"""

from rulewright.logic.chain import (
    Chain,
    Path,
    Step,
    count_steps,
    decode_path,
    encode_path,
    encode_step,
    invert_step,
    is_inverse,
    mirror_path,
    path_atoms,
    step_relation,
)
from rulewright.logic.clauses import Clause, cnf, exclusive_clauses, unify
from rulewright.logic.compare import substitute, subsumes
from rulewright.logic.parser import (
    RuleSource,
    as_rules,
    parse_atom,
    parse_formula,
    parse_rule,
    parse_rules,
    parse_statement,
    parse_template,
)
from rulewright.logic.printer import quote
from rulewright.logic.rules import (
    NUMBER_TYPE,
    Annotations,
    Head,
    PredicateDeclaration,
    Rule,
    Statement,
    Template,
    WeightedFormula,
)
from rulewright.logic.ruleset import RuleSet
from rulewright.logic.terms import (
    And,
    Atom,
    Comparison,
    Formula,
    Iff,
    Implies,
    Literal,
    Membership,
    Not,
    Number,
    Or,
    PredicateVariable,
    Symbol,
    Term,
    Unit,
    Variable,
    atom_of,
    hint_at_variable,
    units,
    variables,
)

__all__ = [
    "NUMBER_TYPE",
    "And",
    "Annotations",
    "Atom",
    "Chain",
    "Clause",
    "Comparison",
    "Formula",
    "Head",
    "Iff",
    "Implies",
    "Literal",
    "Membership",
    "Not",
    "Number",
    "Or",
    "Path",
    "PredicateDeclaration",
    "PredicateVariable",
    "Rule",
    "RuleSet",
    "RuleSource",
    "Statement",
    "Step",
    "Symbol",
    "Template",
    "Term",
    "Unit",
    "Variable",
    "WeightedFormula",
    "as_rules",
    "atom_of",
    "cnf",
    "count_steps",
    "decode_path",
    "encode_path",
    "encode_step",
    "exclusive_clauses",
    "hint_at_variable",
    "invert_step",
    "is_inverse",
    "mirror_path",
    "parse_atom",
    "parse_formula",
    "parse_rule",
    "parse_rules",
    "parse_statement",
    "parse_template",
    "path_atoms",
    "quote",
    "step_relation",
    "substitute",
    "subsumes",
    "unify",
    "units",
    "variables",
]
