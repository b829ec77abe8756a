"""The layer against mean field over all groundings, and against the Markov logic network itself."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.layer.plain_mean_field import atoms, exact_marginals, mean_field, softmax

import rulewright as rw
from rulewright.errors import MemoryLimitError, RulewrightError
from rulewright.inject import LogicLayer
from rulewright.inject.layer.plan import Planner
from rulewright.logic import (
    And,
    Atom,
    Comparison,
    Formula,
    Iff,
    Implies,
    Membership,
    Not,
    Or,
    PredicateDeclaration,
    RuleSet,
    Symbol,
    Variable,
    WeightedFormula,
    units,
    variables,
)

PREDICATES = {
    declaration.name: declaration
    for declaration in (
        PredicateDeclaration("p", ("t",)),
        PredicateDeclaration("q", ("u",)),
        PredicateDeclaration("r", ("t", "t")),
        PredicateDeclaration("s", ("t", "u")),
        PredicateDeclaration("w", ("t", "u", "t")),
        PredicateDeclaration("label", ("t",), ("x", "y", "z")),
        PredicateDeclaration("mark", ("t", "t"), ("m", "n", "o")),
    )
}
DOMAINS = {"t": ("1", "2", "3"), "u": ("a", "b")}
CLASSES = {name: len(declaration.classes or (0, 1)) for name, declaration in PREDICATES.items()}


@st.composite
def unit_formulas(draw: st.DrawFn, names: tuple[str, ...]) -> Formula:
    name = draw(st.sampled_from(names))
    declaration = PREDICATES[name]
    args = tuple(
        draw(
            st.sampled_from(
                [Variable(f"{type_name.upper()}{n}") for n in range(3 if type_name == "t" else 2)] * 3
                + [Symbol(name) for name in DOMAINS[type_name]]
            )
        )
        for type_name in declaration.types
    )
    atom = Atom(name, args)
    if declaration.classes is None:
        return atom
    size = draw(st.integers(1, len(declaration.classes) - 1))
    return Membership(atom, tuple(draw(st.permutations(declaration.classes))[:size]))


@st.composite
def formulas(draw: st.DrawFn, names: tuple[str, ...] = tuple(PREDICATES), most: int = 4) -> Formula:
    """A formula of up to ``most`` literals; comparisons only of variables that have a type."""
    count = draw(st.integers(1, most))
    parts: list[Formula] = [draw(unit_formulas(names)) for _ in range(count)]
    known = [variable for part in parts for variable in variables(part)]
    if known and draw(st.booleans()) and draw(st.booleans()):
        one = draw(st.sampled_from(known))
        other = draw(
            st.sampled_from(
                [variable for variable in known if variable.name[0] == one.name[0]]
                + [Symbol(DOMAINS[one.name[0].lower()][0])]
            )
        )
        if one.name[0] == "T" and draw(st.booleans()):
            operator = draw(st.sampled_from(["<", "<=", ">", ">="]))
            other = other if isinstance(other, Variable) else draw(st.sampled_from(known))
            if other.name[0] == "T":
                parts.append(Comparison(operator, one, other))
        else:
            parts.append(Comparison(draw(st.sampled_from(["=", "!="])), one, other))
    while len(parts) > 1:
        left, right = parts.pop(draw(st.integers(0, len(parts) - 1))), parts.pop(0)
        connective = draw(st.sampled_from([And, Or, Implies, Iff, Or, Implies]))
        parts.append(connective((left, right)) if connective in (And, Or) else connective(left, right))
        if draw(st.booleans()):
            parts.append(Not(parts.pop()))
    return parts[0]


def used_predicates(formulas: list[Formula]) -> dict[str, PredicateDeclaration]:
    names = {unit.predicate for formula in formulas for unit in units(formula) if not isinstance(unit, Comparison)}
    return {name: PREDICATES[name] for name in sorted(names)}


class Problem:
    """Random potentials and evidence for some formulas, for both implementations."""

    def __init__(self, weighted: list[tuple[float, Formula]], seed: int, *, observe: float) -> None:
        chance = random.Random(seed)
        self.formulas = weighted
        self.predicates = used_predicates([formula for _, formula in weighted])
        used = {type_name for declaration in self.predicates.values() for type_name in declaration.types}
        self.domains = {type_name: names for type_name, names in DOMAINS.items() if type_name in used}
        self.names = list(atoms(self.predicates, DOMAINS))
        self.potentials = {
            atom: [0.0, chance.gauss(0, 1)]
            if PREDICATES[atom[0]].classes is None
            else [chance.gauss(0, 1) for _ in range(CLASSES[atom[0]])]
            for atom in self.names
        }
        self.evidence = {atom: chance.randrange(CLASSES[atom[0]]) for atom in self.names if chance.random() < observe}

    def rules(self) -> RuleSet:
        return RuleSet(
            [WeightedFormula(formula, "soft", weight) for weight, formula in self.formulas],
            predicates=self.predicates.values(),
        )

    def tensors(self) -> tuple[dict[str, torch.Tensor], dict[str, tuple[torch.Tensor, torch.Tensor]]]:
        logits, evidence = {}, {}
        for name, declaration in self.predicates.items():
            shape = [len(DOMAINS[type_name]) for type_name in declaration.types]
            atoms_of_name = [atom for atom in self.names if atom[0] == name]
            values = torch.tensor([self.potentials[atom] for atom in atoms_of_name], dtype=torch.float64)
            values = values[:, 1].reshape(shape) if declaration.classes is None else values.reshape(*shape, -1)
            logits[name] = values
            seen = torch.tensor([atom in self.evidence for atom in atoms_of_name]).reshape(shape)
            chosen = torch.tensor([self.evidence.get(atom, 0) for atom in atoms_of_name]).reshape(shape)
            if bool(seen.any()):
                evidence[name] = (chosen.bool() if declaration.classes is None else chosen, seen)
        return logits, evidence

    def marginals(self, output: dict[str, torch.Tensor]) -> dict[object, list[float]]:
        marginals: dict[object, list[float]] = {}
        for name, declaration in self.predicates.items():
            atoms_of_name = [atom for atom in self.names if atom[0] == name]
            logits = output[name]
            if declaration.classes is None:
                rows = [[1 - probability, probability] for probability in torch.sigmoid(logits).reshape(-1).tolist()]
            else:
                rows = torch.softmax(logits, -1).reshape(-1, len(declaration.classes)).tolist()
            marginals |= dict(zip(atoms_of_name, rows, strict=True))
        return marginals


def assert_same(problem: Problem, layer: LogicLayer, *, iterations: int, damping: float = 0.0) -> None:
    logits, evidence = problem.tensors()
    found = problem.marginals(layer(logits, evidence))
    wanted = mean_field(
        problem.formulas,
        problem.predicates,
        DOMAINS,
        problem.potentials,
        problem.evidence,
        iterations=iterations,
        damping=damping,
    )
    for atom, values in wanted.items():
        marginal = softmax(values)
        if atom in problem.evidence:
            marginal = [float(value == problem.evidence[atom]) for value in range(len(marginal))]
        assert found[atom] == pytest.approx(marginal, abs=1e-6), atom


@pytest.mark.slow
@settings(max_examples=300)
@given(formula=formulas(), weight=st.sampled_from([1.0, -0.7, 2.5]), seed=st.integers(0, 10**6))
def test_one_iteration_equals_mean_field(formula, weight, seed):
    problem = Problem([(weight, formula)], seed, observe=0.15)
    assert_same(problem, LogicLayer(problem.rules(), problem.domains, 1), iterations=1)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    several=st.lists(
        st.tuples(st.sampled_from([0.5, -1.0, 1.5]), formulas(("p", "r", "s", "label"), 3)), min_size=2, max_size=3
    ),
    seed=st.integers(0, 10**6),
    damping=st.sampled_from([0.0, 0.4]),
)
def test_several_formulas_and_iterations_equal_mean_field(several, seed, damping):
    problem = Problem(several, seed, observe=0.2)
    layer = LogicLayer(problem.rules(), problem.domains, 3, damping=damping)
    assert_same(problem, layer, iterations=3, damping=damping)


@pytest.mark.slow
@settings(max_examples=60)
@given(formula=formulas(("r",), 4), seed=st.integers(0, 10**6))
def test_atoms_of_one_predicate_that_coincide(formula, seed):
    problem = Problem([(1.0, formula)], seed, observe=0.0)
    assert_same(problem, LogicLayer(problem.rules(), problem.domains, 2), iterations=2)


@pytest.mark.slow
@settings(max_examples=40)
@given(formula=formulas(), seed=st.integers(0, 10**6))
def test_without_order_and_sharing_the_result_is_the_same(formula, seed):
    problem = Problem([(1.0, formula)], seed, observe=0.1)
    logits, evidence = problem.tensors()
    fast = LogicLayer(problem.rules(), problem.domains, 2)(logits, evidence)
    layer = LogicLayer(problem.rules(), problem.domains, 2)
    layer.planner = Planner(layer.grounding, optimize=False, share=False)
    plain = layer(logits, evidence)
    for name in fast:
        torch.testing.assert_close(fast[name], plain[name])


@settings(max_examples=40)
@given(formula=formulas(), seed=st.integers(0, 10**6))
def test_a_batch_is_its_rows_and_a_mask_leaves_entities_out(formula, seed):
    problems = [Problem([(1.0, formula)], seed + row, observe=0.0) for row in range(2)]
    rows = [problem.tensors()[0] for problem in problems]
    rules = problems[0].rules()
    layer = LogicLayer(rules, problems[0].domains, 2)
    batch = layer({name: torch.stack([row[name] for row in rows]) for name in rows[0]})
    for index, row in enumerate(rows):
        alone = layer(row)
        for name in row:
            torch.testing.assert_close(batch[name][index], alone[name])
    if any(isinstance(term, Symbol) for unit in units(formula) for term in unit.args):
        return
    # Padded by one entity of each type that the mask leaves out, everything stays as it is.
    padded = {}
    for name, tensor in rows[0].items():
        arity = PREDICATES[name].arity
        tail = [0, 0] * (tensor.ndim - arity)
        padded[name] = torch.nn.functional.pad(tensor, [*tail, *([0, 1] * arity)], value=1.7)[None].repeat(
            2, *[1] * tensor.ndim
        )
    wide = {"t": ("1", "2", "3", "9"), "u": ("a", "b", "c")}
    used = {type_name for name in padded for type_name in PREDICATES[name].types}
    masks = {type_name: torch.tensor([[True] * len(DOMAINS[type_name]) + [False]] * 2) for type_name in used}
    masked = LogicLayer(rules, {type_name: wide[type_name] for type_name in used}, 2)(padded, mask=masks)
    alone = layer(rows[0])
    for name, tensor in alone.items():
        index = (1, *(slice(0, len(DOMAINS[type_name])) for type_name in PREDICATES[name].types))
        torch.testing.assert_close(masked[name][index], tensor)


@pytest.mark.slow
@settings(max_examples=25)
@given(formula=formulas(("p", "r", "s", "label"), 3), seed=st.integers(0, 10**6))
def test_gradients(formula, seed):
    problem = Problem([(1.0, formula)], seed, observe=0.1)
    rules = RuleSet([WeightedFormula(formula, "learn")], predicates=problem.predicates.values())
    layer = LogicLayer(rules, problem.domains, 2).double()
    logits, evidence = problem.tensors()
    names = list(logits)
    given_logits = [logits[name].requires_grad_() for name in names]

    def run(weight, *tensors):
        with torch.no_grad():
            layer.weights.learned.copy_(weight)
        output = torch.func.functional_call(
            layer, {"weights.learned": weight}, (dict(zip(names, tensors, strict=True)), evidence)
        )
        return tuple(torch.sigmoid(logits_of_name) for logits_of_name in output.values())

    weight = torch.tensor([0.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (weight, *given_logits), atol=1e-6)


def test_the_papers_clause_sum_counts_twice_and_ours_does_not():
    rules = rw.parse_rules("1.0 a(X) & b(X).")
    logits = {"a": torch.zeros(1), "b": torch.logit(torch.tensor([0.6]))}
    assert LogicLayer(rules, iterations=1)(logits)["a"].item() == pytest.approx(0.6)
    assert LogicLayer(rules, iterations=1, cnf="paper")(logits)["a"].item() == pytest.approx(1.0)


def test_distilling_one_iteration_has_the_gradient_of_the_grounding_score():
    """Proposition K.1: ∇ ½Σ(φ − stop(φ + message))² weighted by Q(1−Q) is −∇ of the expected score."""
    rules = rw.parse_rules("1.3 r(A, B) & r(B, C) => r(A, C). -0.4 r(A, B) & p(A).")
    torch.manual_seed(0)
    logits = {"r": torch.randn(4, 4, dtype=torch.float64), "p": torch.randn(4, dtype=torch.float64)}
    after = LogicLayer(rules, iterations=1)(logits)
    leaves = {name: given_logits.clone().requires_grad_() for name, given_logits in logits.items()}
    marginals = {name: torch.sigmoid(leaf) for name, leaf in leaves.items()}
    score = expected_score(marginals)
    gradients = torch.autograd.grad(score, [marginals["r"], marginals["p"]])
    for name, gradient in zip(("r", "p"), gradients, strict=True):
        torch.testing.assert_close(after[name] - logits[name], gradient)


def expected_score(marginals: dict[str, torch.Tensor]) -> torch.Tensor:
    """Σ_f w_f Σ_g E[φ_f], each grounding's atoms taken once."""
    r, p = marginals["r"], marginals["p"]
    total = torch.zeros((), dtype=r.dtype)
    n = len(p)
    for a in range(n):
        for b in range(n):
            total = total - 0.4 * r[a, b] * p[a]
            for c in range(n):
                if len({(a, b), (b, c), (a, c)}) == 3:
                    total = total + 1.3 * (1 - r[a, b] * r[b, c] * (1 - r[a, c]))
                elif (a, b) == (b, c):
                    total = total + 1.3
    return total


def test_mean_field_beside_the_exact_marginals():
    """What the approximation costs is visible: near for weak weights, and on the right side of a half."""
    formula = rw.parse_formula("p(T0) & r(T0, T1) => p(T1)")
    problem = Problem([(0.3, formula)], 7, observe=0.0)
    exact = exact_marginals(problem.formulas, problem.predicates, DOMAINS, problem.potentials, {})
    logits, _ = problem.tensors()
    found = problem.marginals(LogicLayer(problem.rules(), problem.domains, 50)(logits))
    assert len(exact) == 12
    for atom, marginal in exact.items():
        assert found[atom] == pytest.approx(marginal, abs=0.03)


@settings(max_examples=40)
@given(formula=formulas(("p", "label", "q"), 3), seed=st.integers(0, 10**6))
def test_exact_marginals_equal_enumeration(formula, seed):
    problem = Problem([(0.8, formula)], seed, observe=0.3)
    wanted = exact_marginals(problem.formulas, problem.predicates, DOMAINS, problem.potentials, problem.evidence)
    logits, evidence = problem.tensors()
    found = LogicLayer(problem.rules(), problem.domains).exact_marginals(logits, evidence)
    for name, declaration in problem.predicates.items():
        rows = found[name].reshape(-1, len(declaration.classes)) if declaration.classes else found[name].reshape(-1)
        for atom, row in zip(
            [ground_atom for ground_atom in problem.names if ground_atom[0] == name], rows, strict=True
        ):
            expected = wanted[atom] if declaration.classes else wanted[atom][1]
            assert row.tolist() == pytest.approx(expected, abs=1e-9)


def test_several_batch_dimensions():
    layer = LogicLayer(rw.parse_rules("1.0 r(A, B) & r(B, C) => r(A, C)."))
    logits = torch.randn(2, 3, 4, 4)
    mask = torch.tensor([True, True, True, False]).expand(2, 3, 4)
    output = layer({"r": logits}, mask={"entity": mask})["r"]
    assert output.shape == logits.shape
    alone = layer({"r": logits[1, 2, :3, :3]})["r"]
    torch.testing.assert_close(output[1, 2, :3, :3], alone)
    torch.testing.assert_close(output[..., 3], logits[..., 3])


def test_evidence_everywhere_closed_predicates_and_rules():
    rules = rw.parse_rules("0.9 :: smokes(Y) :- friend(X, Y), smokes(X). closed friend.")
    friends = torch.tensor([[False, True], [False, False]])
    layer = LogicLayer(rules, iterations=1, weights="logit")
    output = layer({"smokes": torch.zeros(2)}, {"friend": friends})["smokes"]
    strength = torch.logit(torch.tensor(0.9)) * 0.5
    torch.testing.assert_close(output, torch.stack([-strength, strength]))
    seen = (torch.tensor([True, False]), torch.tensor([True, False]))
    observed = LogicLayer(rules, iterations=1)({"smokes": torch.zeros(2)}, {"friend": friends, "smokes": seen})
    assert observed["smokes"].tolist() == [1e4, 1.0]


def test_weights_that_are_annotated():
    rules = rw.parse_rules("p(X) :- q(X). r(X) :- q(X). 2.0 s(X).").with_weights({"p(X) :- q(X).": 1.5, "s(X)": 0.5})
    with pytest.raises(rw.RulewrightError, match=r"needs the weight of every rule.* none in: r\(X\) :- q\(X\)"):
        LogicLayer(rules, weights="annotated")
    layer = LogicLayer(rules.with_weights({"r(X) :- q(X).": 0}), iterations=1, weights="annotated")
    logits = {name: torch.zeros(2) for name in "pqrs"}
    output = layer(logits)
    assert {name: values.tolist() for name, values in output.items()} == {
        "p": [0.75] * 2,
        "q": [-0.75] * 2,
        "r": [0.0] * 2,
        "s": [0.5] * 2,
    }


def test_learned_weights_are_in_the_rules():
    layer = LogicLayer(rw.parse_rules("learn p(X) => q(X). 2.0 q(X)."), initial_weight=0.5)
    assert [str(statement) for statement in layer.rules] == ["0.5 p(X) => q(X).", "2.0 q(X)."]
    assert [parameter.numel() for parameter in layer.parameters()] == [1]


def test_extreme_logits_and_weights_stay_finite():
    layer = LogicLayer(rw.parse_rules("1e4 r(A, B) & r(B, C) => r(A, C). hard r(A, B) => r(B, A)."), iterations=5)
    logits = (torch.randn(6, 6) * 1e5).requires_grad_()
    output = layer({"r": logits})["r"]
    output.sum().backward()
    assert bool(torch.isfinite(output).all()) and bool(torch.isfinite(logits.grad).all())


def test_early_stop_and_report():
    layer = LogicLayer(rw.parse_rules("0.5 p(X) => q(X)."), iterations=50, tolerance=1e-6)
    layer({"p": torch.zeros(3), "q": torch.zeros(3)})
    assert layer.convergence.converged and len(layer.convergence.changes) < 50
    assert str(layer.convergence).startswith("settled after")


def test_explanations_add_up_to_what_moved():
    torch.manual_seed(1)
    rules = rw.parse_rules("1.0 r(A, B) & r(B, C) => r(A, C). 0.5 p(A) => r(A, B).")
    layer = LogicLayer(rules, iterations=2)
    logits = {"r": torch.randn(5, 5, dtype=torch.float64), "p": torch.randn(5, dtype=torch.float64)}
    out = layer(logits)["r"]
    for row, column in ((0, 1), (2, 2), (4, 0)):
        explanation = layer.explain(f"r({row}, {column})", top=50)
        assert explanation.now == pytest.approx(out[row, column].item())
        assert sum(influence.moved for influence in explanation.formulas) == pytest.approx(
            explanation.now - explanation.given
        )
        for influence in explanation.formulas:
            assert sum(part.moved for part in influence.groundings) == pytest.approx(influence.moved, abs=1e-9)


def test_the_plan_says_what_it_costs_and_refuses_what_does_not_fit():
    layer = LogicLayer(rw.parse_rules("1.0 r(A, B) & r(B, C) => r(A, C)."), memory_limit=10**6)
    plan = layer.plan({"entity": 512})
    assert plan.groundings == 512**3
    assert plan.rows[0].contractions == 3
    assert plan.flops >= 3 * 2 * 512**3
    assert "r(A, B) & r(B, C) => r(A, C)" in str(plan)
    with pytest.raises(MemoryLimitError, match=r"grounding needs .* and the limit is .*split the formula"):
        layer({"r": torch.zeros(600, 600)})


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_to_machine_code_it_gives_the_same_values_and_gradients(dynamic):
    rules = rw.parse_rules("""
        predicate label(token) in {a, b, c}.
        closed next.
        1.5 label(X) in {a} & next(X, Y) => label(Y) in {b}.
        0.5 next(X, Y) & p(X) => p(Y).
    """)
    layer = LogicLayer(rules)
    compiled = torch.compile(layer, dynamic=dynamic)
    generator = torch.Generator().manual_seed(0)
    for size in (4, 6):
        label = torch.randn(2, size, 3, generator=generator, requires_grad=True)
        logits = {"label": label, "p": torch.randn(2, size, generator=generator)}
        evidence = {"next": torch.rand(size, size, generator=generator) > 0.5}
        results = [module(logits, evidence) for module in (layer, compiled)]
        for name in logits:
            torch.testing.assert_close(results[1][name], results[0][name], atol=1e-4, rtol=1e-4)
        slopes = [torch.autograd.grad(sum(t.square().sum() for t in result.values()), label)[0] for result in results]
        torch.testing.assert_close(slopes[1], slopes[0], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogicLayer(rw.parse_rules("template s(X) :- ?P(X) where ?P in *.")), "template"),
        (lambda: LogicLayer(rw.parse_rules("1 p(ann).")), "needs the names of type entity"),
        (lambda: LogicLayer(rw.parse_rules("1 p(anna)."), {"entity": ["ann"]}), "did you mean 'ann'"),
        (lambda: LogicLayer(rw.parse_rules("1 p(X)."), {"entity": []}), "empty"),
        (lambda: LogicLayer(rw.parse_rules("1 p(X)."), {"thing": 3}), "unknown type"),
        (lambda: LogicLayer(rw.parse_rules("predicate p(a). predicate q(b). 1 p(X) => q(X).")), "stands for both"),
        (lambda: LogicLayer(rw.parse_rules("1 l(X) in {a}.")), "declare its classes"),
        (lambda: LogicLayer(rw.parse_rules("1 p(X)."), iterations=-1), "iterations must be >= 0"),
        (lambda: LogicLayer(rw.parse_rules("1 p(X)."), damping=1.0), "damping"),
        (lambda: LogicLayer(rw.parse_rules("1 p(X)."))({}), "no logits or evidence"),
        (lambda: LogicLayer(rw.parse_rules("1 p(X)."))({"q": torch.zeros(2)}), "unknown predicate 'q'"),
        (lambda: LogicLayer(rw.parse_rules("1 p(X)."))({"p": torch.tensor([float("nan")])}), "NaN"),
        (
            lambda: LogicLayer(rw.parse_rules("1 p(X) => q(X)."))({"p": torch.zeros(2), "q": torch.zeros(3)}),
            r"expects size 2 for type entity at argument 1.*got the shape \[3\], in: p\(X\) => q\(X\)",
        ),
        (lambda: LogicLayer(rw.parse_rules("1 r(X, Y)."))({"r": torch.zeros(2)}), "at least 2 dimensions"),
        (lambda: LogicLayer(rw.parse_rules("1 p(X). closed p."))({"p": torch.zeros(2)}), "closed"),
        (
            lambda: LogicLayer(rw.parse_rules("hard !p(X)."))({"p": torch.zeros(2)}, {"p": torch.ones(2).bool()}),
            "contradicts a hard formula in 2 groundings",
        ),
        (
            lambda: LogicLayer(rw.parse_rules("predicate l(t) in {a, b}. 1 l(X) in {a}."))({"l": torch.zeros(2, 3)}),
            "2 classes in the last dimension",
        ),
        (
            lambda: LogicLayer(rw.parse_rules("1 p(X)."))({"p": torch.zeros(2)}, {"p": torch.ones(2)}),
            "must be boolean",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(RulewrightError, match=message):
        make()
