"""Every form of the loss against its definition over all groundings, for atoms of any arity, classes and evidence."""

from __future__ import annotations

import copy
import io
import itertools
import math
import pickle

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from inject.layer.plain_mean_field import false_probability, groundings, softmax
from inject.layer.test_layer import DOMAINS, Problem, formulas

from rulewright.errors import DataError
from rulewright.inject import ConsistencyLoss
from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms.clauses import read_clauses
from rulewright.logic import RuleSet, Symbol, WeightedFormula, parse_rules, units, variables

torch.set_num_threads(1)
ETA = 0.1


def hard_rules(problem):
    statements = [WeightedFormula(formula, "hard", None) for _, formula in problem.formulas]
    return RuleSet(statements, predicates=problem.predicates.values())


def all_marginals(problem):
    marginals = {atom: softmax(values) for atom, values in problem.potentials.items()}
    for atom, chosen in problem.evidence.items():
        marginals[atom] = [float(value == chosen) for value in range(len(marginals[atom]))]
    return marginals


def draw_problem(formula, seed, observe, weight=1.5):
    return Problem([(weight, formula)], seed, observe=observe)


def plain_independent(problem, formula, form, domains, distinct):
    """Return the sum over groundings of P(false), or of -log P(true), and their number."""
    marginals = all_marginals(problem)
    total = 0.0
    for binding in groundings(formula, problem.predicates, domains, distinct=distinct):
        false = false_probability(formula, binding, marginals, problem.predicates)
        if form == "violation":
            total += false
        elif false < 1 - 1e-12:
            total -= math.log(1 - false)
    types = {str(name): str(name)[0].lower() for name in variables(formula)}
    assignments = itertools.product(*(domains[type_name] for type_name in types.values()))
    named = [list(zip(types.values(), values, strict=True)) for values in assignments]
    return total, sum(not distinct or len(set(values)) == len(values) for values in named)


def plain_hinge(problem, clauses, domains):
    """Return the sum over all groundings of clauses, one after the other."""
    marginals, total = all_marginals(problem), 0.0
    for clause in clauses:
        offset = math.log(clause.confidence) - ETA * (len(clause.body) - (not clause.heads))
        kept = [[DOMAINS[type_name].index(name) for name in domains[type_name]] for type_name in clause.types]
        for entities in itertools.product(*kept):
            if clause.is_asked(entities):
                total += ground_hinge(problem, clause, entities, marginals, offset)
    return total


def ground_hinge(problem, clause, entities, marginals, offset):
    broken, is_head = {}, {}  # the classes of each atom with which the grounding may be false
    for atom, positive in [(atom, False) for atom in clause.body] + [(atom, True) for atom in clause.heads]:
        types = problem.predicates[atom.predicate].types
        indices = [~arg if arg < 0 else entities[arg] for arg in atom.args]
        key = (atom.predicate, tuple(DOMAINS[type_name][i] for type_name, i in zip(types, indices, strict=True)))
        every = set(range(len(marginals[key])))
        broken[key] = broken.get(key, every) & (every - atom.classes if positive else atom.classes)
        is_head[key] = positive and is_head.get(key, True)
    for key, chosen in problem.evidence.items():
        if key in broken:
            if chosen not in broken[key]:
                return 0.0
            del broken[key]
    if not all(broken.values()):
        return 0.0
    broken = {key: chosen for key, chosen in broken.items() if len(chosen) < len(marginals[key])}
    false = {key: sum(marginals[key][value] for value in chosen) for key, chosen in broken.items()}
    body = [p for key, p in false.items() if not is_head[key]]
    heads = [p for key, p in false.items() if is_head[key]]
    if heads:
        return max(0.0, offset + sum(map(math.log, body)) - math.log(1 - math.prod(heads)))
    total = sum(map(math.log, body))
    return sum(max(0.0, offset + total - math.log(p) - math.log(1 - p)) for p in body) / max(1, len(body))


def keep_some(problem, masked):
    """Return the domains without some entities, and the masks that say so."""
    domains, mask = dict(problem.domains), {}
    for type_name in domains:
        kept = [name for name in domains[type_name] if name not in masked]
        mask[type_name] = torch.tensor([name in kept for name in domains[type_name]])
        domains[type_name] = tuple(kept)
    return domains, mask if masked else None


CASES = {
    "formula": formulas(),
    "seed": st.integers(0, 10**6),
    "observe": st.sampled_from([0.0, 0.3]),
    "masked": st.sampled_from([(), ("2",), ("1", "b")]),
    "distinct": st.booleans(),
    "chunk": st.sampled_from([None, 3]),
}


@settings(max_examples=60, deadline=None)
@given(**CASES, form=st.sampled_from(["violation", "log"]), per=st.sampled_from(["grounding", "sample"]))
def test_violation_and_log_equal_their_definitions(formula, seed, observe, masked, distinct, chunk, form, per):
    assume(not any(isinstance(term, Symbol) and term.name in masked for unit in units(formula) for term in unit.args))
    problem = draw_problem(formula, seed, observe)
    domains, mask = keep_some(problem, masked)
    try:
        loss = ConsistencyLoss(
            problem.rules(), domains=problem.domains, distinct=distinct, form=form, per=per, chunk=chunk
        )
    except DataError as error:
        assume("entity with itself" not in str(error))
        raise
    logits, evidence = problem.tensors()
    total, count = plain_independent(problem, formula, form, domains, distinct)
    wanted = 1.5 * (total / max(1, count) if per == "grounding" else total)
    assert loss(logits, evidence, mask).item() == pytest.approx(wanted, abs=1e-9, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(**CASES)
def test_hinges_equal_their_definition(formula, seed, observe, masked, distinct, chunk):
    assume(not any(isinstance(term, Symbol) and term.name in masked for unit in units(formula) for term in unit.args))
    problem = draw_problem(formula, seed, observe)
    domains, mask = keep_some(problem, masked)
    try:
        rules = hard_rules(problem)
        space = AtomSpace(rules, domains=problem.domains, distinct=distinct)
        clauses = read_clauses(space, reader="ConsistencyLoss")
        loss = ConsistencyLoss(rules, domains=problem.domains, distinct=distinct, eta=ETA, chunk=chunk)
    except DataError as error:
        assume("entity with itself" not in str(error) and "can satisfy" not in str(error))
        raise
    logits, evidence = problem.tensors()
    wanted = plain_hinge(problem, clauses, domains)
    assert loss(logits, evidence, mask).item() == pytest.approx(wanted, abs=1e-9, rel=1e-9)


TEXT = """
    predicate label(node) in {x, y, z}.
    0.9 :: r(X, Z) :- r(X, Y), r(Y, Z).
    hard p(X) & r(X, Y) => q(Y) | label(X) in {x, y}.
    hard !(p(X) & p(Y) & r(X, Y)).
    hard label(X) in {x} & next(X, Y) => label(Y) in {y, z}.
    hard p(X) | q(X).
"""
FORMS = ("hinge", "violation", "log")


def mixed_inputs(seed=0, batch=(2,), size=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*batch, *shape, dtype=torch.float64, generator=generator).mul(1.5).to(dtype)

    logits = {"r": draw(size, size), "p": draw(size), "q": draw(size), "label": draw(size, 3)}
    following = torch.diag(torch.ones(size - 1, dtype=torch.bool), 1)
    seen = torch.zeros(size, dtype=torch.bool)
    seen[0] = True
    evidence = {"next": following, "q": (torch.zeros(size, dtype=torch.bool), seen)}
    mask = {"node": torch.arange(size) < size - torch.arange(math.prod(batch)).reshape(*batch, 1) % 2}
    return logits, evidence, mask


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_finite_differences(form):
    loss = ConsistencyLoss(TEXT, form=form, reduction="none")
    logits, evidence, mask = mixed_inputs()

    def run(*values):
        return loss(dict(zip(logits, values, strict=True)), evidence, mask)

    values = tuple(tensor.requires_grad_() for tensor in logits.values())
    assert torch.autograd.gradcheck(run, values)
    assert torch.autograd.gradgradcheck(run, values, fast_mode=True)


@pytest.mark.parametrize("form", ["hinge", "log"])
def test_chunks_change_no_derivative(form):
    found = []
    for chunk in (None, 5):
        logits, evidence, mask = mixed_inputs()
        values = [tensor.requires_grad_() for tensor in logits.values()]
        loss = ConsistencyLoss(TEXT, form=form, chunk=chunk)(logits, evidence, mask)
        first = torch.autograd.grad(loss, values, create_graph=True)
        second = torch.autograd.grad(sum(gradient.square().sum() for gradient in first), values)
        loss = ConsistencyLoss(TEXT, form=form, chunk=chunk)(logits, evidence, mask)
        found.append([loss, *first, *second, *torch.autograd.grad(loss, values)])
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0][1:5], found[0][-4:])


@pytest.mark.parametrize("form", [*FORMS, "published"])
def test_stacked_relations_have_second_derivatives(form):
    rules = "0.9 :: a(X, Z) :- a(X, Y), b(Y, Z). 0.8 :: b(X, Y) :- a(Y, X)."
    if form == "hinge":
        rules += " hard !(a(X, Y) & b(X, Y))."
    loss = ConsistencyLoss(rules, relations=["a", "b"], form=form, reduction="none")
    logits = torch.randn(2, 3, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    mask = torch.tensor([[True] * 3, [True, False, True]])
    assert torch.autograd.gradcheck(lambda x: loss(x, mask), (logits,))
    assert torch.autograd.gradgradcheck(lambda x: loss(x, mask), (logits,))


@pytest.mark.parametrize("form", FORMS)
def test_stacked_relations_are_a_shorthand(form):
    rules = "0.9 :: a(X, Z) :- a(X, Y), b(Y, Z). 0.8 :: b(X, Y) :- a(Y, X). hard !(a(X, Y) & b(X, Y))."
    logits = torch.randn(2, 4, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    mask = torch.tensor([[True] * 4, [True, True, False, True]])
    for per in ("grounding", "sample"):
        stacked = ConsistencyLoss(rules, relations=["a", "b"], form=form, per=per, reduction="none")
        by_name = ConsistencyLoss(rules, distinct=True, form=form, per=per, reduction="none")
        parts = {"a": logits[..., 0], "b": logits[..., 1]}
        torch.testing.assert_close(stacked(logits, mask), by_name(parts, mask={"entity": mask}))
        torch.testing.assert_close(stacked(logits, mask), stacked(parts, mask=mask))
        torch.testing.assert_close(stacked(logits, mask)[1:], stacked(logits[1], mask[1])[None])


@pytest.mark.parametrize("form", FORMS)
def test_observed_relations_of_a_stack(form):
    rules = "0.9 :: a(X, Z) :- a(X, Y), b(Y, Z)."
    logits = torch.randn(1, 4, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    seen = torch.rand(4, 4, generator=torch.Generator().manual_seed(3)) < 0.5
    by_name = ConsistencyLoss(rules, distinct=True, form=form)
    stacked = ConsistencyLoss(rules, relations=["a", "b"], form=form)
    found = stacked(logits, {"b": seen})
    torch.testing.assert_close(found, by_name({"a": logits[..., 0]}, {"b": seen}))
    torch.testing.assert_close(
        found, ConsistencyLoss(rules, relations=["a", "b"], form=form, evidence={"b": seen})(logits)
    )


@pytest.mark.parametrize("form", FORMS)
def test_batches_are_rows_beside_each_other(form):
    logits, evidence, mask = mixed_inputs(batch=(2, 3))
    loss = ConsistencyLoss(TEXT, form=form, reduction="none")
    values = loss(logits, evidence, mask)
    assert values.shape == (2, 3)
    for row in itertools.product(range(2), range(3)):
        one = loss({name: tensor[row] for name, tensor in logits.items()}, evidence, {"node": mask["node"][row]})
        torch.testing.assert_close(one, values[row])
    for reduction, wanted in (("mean", values.mean()), ("sum", values.sum())):
        found = ConsistencyLoss(TEXT, form=form, reduction=reduction)(logits, evidence, mask)
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_batch_and_one_entity(form):
    loss = ConsistencyLoss(TEXT, form=form)
    logits, evidence, _ = mixed_inputs(batch=(0,))
    logits["p"].requires_grad_()
    empty = loss(logits, evidence)
    empty.backward()
    assert empty.item() == 0 and logits["p"].grad.shape == logits["p"].shape
    logits, evidence, _ = mixed_inputs(size=1)
    assert loss(logits, evidence).isfinite()


@pytest.mark.parametrize("form", FORMS)
def test_padding_may_hold_anything_finite_or_not(form):
    logits, evidence, mask = mixed_inputs()
    loss = ConsistencyLoss(TEXT, form=form, reduction="none")
    wanted = loss(logits, evidence, mask)
    padded = {name: tensor.clone() for name, tensor in logits.items()}
    padded["r"][1, 2] = padded["r"][1, :, 2] = -math.inf
    padded["p"][1, 2] = math.inf
    padded = {name: tensor.requires_grad_() for name, tensor in padded.items()}
    values = loss(padded, evidence, mask)
    torch.testing.assert_close(values, wanted)
    values.sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in padded.values())


@pytest.mark.parametrize("form", ["hinge", "log"])
def test_logits_must_be_finite(form):
    logits, evidence, _ = mixed_inputs()
    logits["p"][0, 1] = math.inf
    with pytest.raises(DataError, match="logits of p must be finite, got inf"):
        ConsistencyLoss(TEXT, form=form)(logits, evidence)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [50.0, 1000.0])
def test_large_logits_have_finite_values_and_gradients_that_mend(form, scale):
    loss = ConsistencyLoss("hard p(X) => q(X) | s(X). hard p(X) <=> t(X).", form=form)
    signs = {"p": 1.0, "q": -1.0, "s": -1.0, "t": -1.0}
    logits = {name: torch.tensor([sign * scale], requires_grad=True) for name, sign in signs.items()}
    value = loss(logits)
    value.backward()
    assert value.isfinite() and value > 0
    assert all(tensor.grad.isfinite().all() for tensor in logits.values())
    if form != "violation":  # its gradient vanishes where it is certain of the opposite
        assert logits["t"].grad.item() < -0.1 and logits["q"].grad.item() + logits["s"].grad.item() < -0.1


@pytest.mark.parametrize("form", FORMS)
def test_half_precision_and_autocast(form):
    logits, evidence, mask = mixed_inputs(dtype=torch.float32)
    loss = ConsistencyLoss(TEXT, form=form)
    wanted = loss(logits, evidence, mask)
    assert wanted.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss(logits, evidence, mask).item() == wanted.item()
    half = {name: tensor.to(torch.bfloat16).requires_grad_() for name, tensor in logits.items()}
    half["p"] = half["p"].detach().float().requires_grad_()
    value = loss(half, evidence, mask)
    single = loss({name: tensor.detach().float() for name, tensor in half.items()}, evidence, mask)
    assert value.dtype == torch.float32 and value.item() == single.item()
    value.backward()
    assert half["r"].grad.dtype == torch.bfloat16 and half["p"].grad.dtype == torch.float32


@pytest.mark.parametrize("form", FORMS)
def test_copies_before_and_after_a_step(form):
    logits, evidence, mask = mixed_inputs()
    loss = ConsistencyLoss(TEXT, form=form, evidence={"next": evidence.pop("next")})
    assert not loss.state_dict() and not list(loss.parameters())
    for _ in range(2):
        wanted = loss({name: tensor.clone().requires_grad_() for name, tensor in logits.items()}, evidence, mask)
        wanted.backward()
        file = io.BytesIO()
        torch.save(loss, file)
        file.seek(0)
        for copied in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), torch.load(file, weights_only=False)):
            assert copied(logits, evidence, mask).item() == wanted.item()


@pytest.mark.parametrize("form", FORMS)
def test_evidence_of_a_call_comes_before_that_of_the_module(form):
    logits, evidence, mask = mixed_inputs()
    other = {"next": ~evidence["next"], "q": evidence["q"]}
    stored = ConsistencyLoss(TEXT, form=form, evidence=other)
    plain = ConsistencyLoss(TEXT, form=form)
    assert stored(logits, mask=mask).item() == plain(logits, other, mask).item()
    assert stored(logits, evidence, mask).item() == plain(logits, evidence, mask).item()


LINKS = "link(X, Z) :- link(X, Y), link(Y, Z). link(X, Y) :- link(Y, X)."


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("form", [*FORMS, "published"])
def test_compiled_equals_eager(form, dynamic, masked):
    torch._dynamo.reset()
    loss = ConsistencyLoss(LINKS, relations=["link"], form=form)
    backend = "inductor" if form == "violation" and masked and not dynamic else "aot_eager"
    compiled = torch.compile(loss, dynamic=dynamic, backend=backend)
    for size in (5, 6):
        generator = torch.Generator().manual_seed(size)
        logits = torch.randn(2, size, size, 1, generator=generator)
        mask = torch.rand(2, size, generator=generator) < 0.8 if masked else None
        one, other = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        wanted, found = loss(one, mask), compiled(other, mask)
        wanted.backward()
        found.backward()
        assert wanted.item() > 0
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(other.grad, one.grad)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_compiled_model_with_a_loss_inside(form, dynamic):
    torch._dynamo.reset()
    logits, evidence, mask = mixed_inputs(dtype=torch.float32)
    loss = ConsistencyLoss(TEXT, form=form)

    def step(values):
        return loss({name: 2 * tensor for name, tensor in values.items()}, evidence, mask) + values["p"].sum()

    eager, compiled = ({name: x.clone().requires_grad_() for name, x in logits.items()} for _ in range(2))
    wanted, found = step(eager), torch.compile(step, dynamic=dynamic, backend="aot_eager")(compiled)
    wanted.backward()
    found.backward()
    torch.testing.assert_close(found, wanted)
    for name, tensor in eager.items():
        torch.testing.assert_close(compiled[name].grad, tensor.grad)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_propositions(form, batch):
    text = "predicate sky in {sun, rain}. hard sky in {rain} & !roof => wet. hard roof => dry(X) | wet."
    shapes = {"roof": batch, "wet": batch, "sky": (*batch, 2), "dry": (*batch, 2)}
    logits = {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
    roof, wet, dry = (torch.sigmoid(logits[name]) for name in ("roof", "wet", "dry"))
    rain = torch.softmax(logits["sky"], -1)[..., 1]
    false = [(rain * (1 - roof) * (1 - wet))[..., None], roof[..., None] * (1 - dry) * (1 - wet)[..., None]]
    bodies = [rain[..., None], roof[..., None]]
    wanted = 0.0
    for broken, body in zip(false, bodies, strict=True):
        values = {
            "violation": broken.mean(-1),
            "log": -torch.log(1 - broken).mean(-1),
            "hinge": torch.relu(-0.05 + body.log() - (1 - broken / body).log()).sum(-1),
        }
        wanted = wanted + values[form]
    found = ConsistencyLoss(text, form=form, reduction="none")(logits)
    torch.testing.assert_close(found, wanted)


def test_weights():
    text = "0.5 :: q(X) :- p(X). 2.0 p(X) & q(X) => s(X). learn s(X)."
    logits = {"p": torch.tensor([0.3]), "q": torch.tensor([-0.2]), "s": torch.tensor([0.9])}
    p, q, s = (torch.sigmoid(tensor).item() for tensor in logits.values())
    false = [p * (1 - q), p * q * (1 - s), 1 - s]
    loss = ConsistencyLoss(text, form="violation")
    assert loss(logits).item() == pytest.approx(0.5 * false[0] + 2 * false[1] + false[2])
    loss = ConsistencyLoss(text, form="log")
    wanted = sum(-weight * math.log(1 - value) for weight, value in zip((0.5, 2, 1), false, strict=True))
    assert loss(logits).item() == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("2.5 p(X) => q(X).", {}, r"a weight is no confidence; use form='violation' or 'log', or a LogicLayer, for: 2"),
        ("learn p(X) => q(X).", {"form": "hinge"}, "the weight is not known; use form='violation'"),
        ("-1 p(X) => q(X).", {"form": "log"}, "takes no negative weights; negate the formula"),
        ("q(X) :- p(X).", {"form": "published"}, "takes rules over relations .* use form='hinge' for: q"),
        ("q(X) :- p(X).", {"form": "published", "per": "sample"}, "leave per out"),
        ("q(X) :- p(X).", {"per": "row"}, "per must be 'grounding', 'sample' or None, got 'row'"),
    ],
)
def test_what_is_refused(text, options, message):
    with pytest.raises(DataError, match=message):
        ConsistencyLoss(text, **options)


def test_rules_may_be_text_lists_or_sets():
    logits = {"p": torch.tensor([1.0]), "q": torch.tensor([-1.0])}
    text = "q(X) :- p(X)."
    values = {ConsistencyLoss(rules)(logits).item() for rules in (text, [text], parse_rules(text))}
    assert len(values) == 1
