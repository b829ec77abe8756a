"""The layer as a part of any PyTorch model: copies, states, dtypes, stored evidence, stacked relations."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import random
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.layer.plain_mean_field import mean_field
from inject.layer.test_layer import PREDICATES
from safetensors.torch import load_file, save_file
from torch import nn

import rulewright as rw
from rulewright.errors import DataError, RulewrightError
from rulewright.inject import LogicLayer
from rulewright.inject.inputs import read_inputs
from rulewright.inject.layer.plan import usual_limit
from rulewright.logic import (
    Comparison,
    PredicateDeclaration,
    RuleSet,
    WeightedFormula,
    parse_formula,
    units,
)

RULES = """
    predicate tag(token) in {o, begin, inside}.
    closed next.
    learn next(T, U) & tag(U) in {inside} => tag(T) in {begin, inside}.
    0.8 :: near(U, T) :- near(T, U).
    2 near(T, U) => near(U, T).
"""


class Model(nn.Module):
    def __init__(self, **options) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.layer = LogicLayer(RULES, iterations=2, **options)

    def forward(self, features, following):
        near = features @ features.mT
        mask = torch.ones(features.shape[:-1], dtype=torch.bool)
        mask[..., -1] = False
        out = self.layer({"tag": self.linear(features), "near": near}, {"next": following}, {"token": mask})
        return out["tag"].sum() + out["near"].sum()


def some_input():
    torch.manual_seed(3)
    return torch.randn(2, 5, 4), torch.rand(2, 5, 5) < 0.3


def stepped(model):
    optimizer = torch.optim.Adam(model.parameters())
    model(*some_input()).backward()
    optimizer.step()
    return model


def through_torch_save(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("when", ["before", "after", "amid"])
@pytest.mark.parametrize(
    "make_copy",
    [
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        through_torch_save,
        lambda model: torch.optim.swa_utils.AveragedModel(model).module,
    ],
    ids=["deepcopy", "pickle", "torch.save", "AveragedModel"],
)
def test_copies(make_copy, when):
    model = Model(learnable=True)
    if when == "after":
        stepped(model)
    elif when == "amid":  # between forward and backward
        model(*some_input())
    other = make_copy(model)
    torch.testing.assert_close(other(*some_input()), model(*some_input()))
    before = other(*some_input())
    stepped(model)
    torch.testing.assert_close(other(*some_input()), before)  # nothing is shared


def test_copies_of_exact_inference():
    following = torch.zeros(4, 4, dtype=torch.bool)
    following[range(3), range(1, 4)] = True
    layer = LogicLayer(
        "predicate tag(t) in {o, b, i}. hard next(T, U) & tag(U) in {i} => tag(T) in {b, i}. 0.5 tag(T) in {o}.",
        inference="exact",
        evidence={"next": following},
        learnable=True,
    )
    logits = {"tag": torch.randn(2, 4, 3, requires_grad=True)}
    layer(logits)["tag"].sum().backward()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(logits)["tag"], layer(logits)["tag"])
    assert layer({"tag": torch.randn(2, 4, 3, dtype=torch.bfloat16)})["tag"].dtype == torch.bfloat16


@pytest.mark.parametrize("inference", ["mean-field", "exact"])
def test_an_empty_batch(inference):
    layer = LogicLayer("learn p(X) => q(X).", inference=inference)
    out = layer({"p": torch.zeros(0, 3, requires_grad=True), "q": torch.zeros(0, 3)})
    assert out["q"].shape == (0, 3)
    out["q"].sum().backward()


def _forward(model, queue):
    queue.put(model(*some_input()).item())


@pytest.mark.slow
def test_a_spawned_worker_gets_the_model():
    model = stepped(Model())
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    worker = context.Process(target=_forward, args=(model, queue))
    worker.start()
    found = queue.get(timeout=120)
    worker.join()
    assert found == pytest.approx(model(*some_input()).item(), rel=1e-5)


def test_what_explain_remembers_holds_no_graph():
    layer = LogicLayer("1.0 p(X) => q(X).")
    leaf = torch.zeros(2, requires_grad=True)
    layer({"p": leaf * 2, "q": leaf})
    assert not any(tensor.requires_grad for tensor in layer._last.logits.values())
    assert layer.explain("q(0)").atom == "q(0)"
    with pytest.raises(DataError, match="not been called yet"):
        copy.deepcopy(layer).explain("q(0)")


# Weights


def test_integer_weights_are_learned():
    layer = LogicLayer("1 p(X) => q(X). -2 q(X).", learnable=True)
    layer({"p": torch.zeros(2), "q": torch.zeros(2)})["q"].sum().backward()
    assert layer.weights.learned.tolist() == [1.0, -2.0]
    assert layer.weights.learned.grad is not None


@pytest.mark.filterwarnings("ignore::rulewright.errors.RulewrightWarning")
@settings(max_examples=50)
@given(
    weights=st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3),
    double=st.booleans(),
    learnable=st.booleans(),
)
def test_learned_weights_pass_through_text(weights, double, learnable):
    layer = LogicLayer("learn p(X) => q(X). 0.9 :: p(X) :- q(X). 3 q(X). hard !(p(X) & q(X)).", learnable=True)
    layer = layer.double() if double else layer
    with torch.no_grad():
        layer.weights.learned.copy_(torch.tensor(weights))
        layer.weights.learned.mul_(1.1)
    again = LogicLayer(rw.parse_rules(str(layer.rules)), learnable=learnable)
    if double and learnable:  # what is learned starts in the usual dtype
        assert again.weights.learned.tolist() == pytest.approx(layer.weights.learned.tolist())
        return
    assert [again.weights.value(i) for i in range(3)] == [layer.weights.value(i) for i in range(3)]
    logits = {"p": torch.randn(3), "q": torch.randn(3)}
    for name, found in again(logits).items():
        assert torch.equal(found, layer(logits)[name])


def test_an_annotated_weight_counts_before_the_confidence():
    logits = {"p": torch.zeros(1), "q": torch.zeros(1)}
    for options in ({}, {"weights": "logit"}, {"learnable": True}):
        layer = LogicLayer("0.9 :: q(X) :- p(X). @{weight: 3.0}", iterations=1, **options)
        assert layer(logits)["q"].item() == pytest.approx(1.5)


LEARNED = "learn p(X) => q(X). learn q(X) => s(X). 2.0 s(X)."


def test_a_state_knows_its_statements(tmp_path):
    layer = LogicLayer(LEARNED)
    with torch.no_grad():
        layer.weights.learned.copy_(torch.tensor([5.0, 7.0]))
    save_file(layer.state_dict(), tmp_path / "state.safetensors")
    torch.save(layer.state_dict(), tmp_path / "state.pt")
    for state in (load_file(tmp_path / "state.safetensors"), torch.load(tmp_path / "state.pt", weights_only=True)):
        again = LogicLayer(LEARNED)
        again.load_state_dict(state)
        assert again.weights.learned.tolist() == [5.0, 7.0]
    more = LogicLayer(f"{LEARNED} -1.0 p(X).")  # what is not learned may be another
    more.load_state_dict(layer.state_dict())
    other = LogicLayer("1.0 p(X) => q(X). 0.5 q(X) => s(X).", learnable=True)  # where weights started is no matter
    other.load_state_dict(layer.state_dict())
    old = {"weights.learned": torch.tensor([1.0, 2.0])}
    assert not again.load_state_dict(old).missing_keys
    assert again.weights.learned.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            "learn q(X) => s(X). learn p(X) => q(X).",
            r"in another order: learned weight 1 is of p\(X\) => q\(X\)\. in the state and of q\(X\) => s\(X\)\.",
        ),
        ("learn p(X) => q(X). learn q(X) => p(X).", r"here is not in it: q\(X\) => p\(X\)\. \(and 1 more\)"),
        ("learn p(X) => q(X).", r"in it is not here: q\(X\) => s\(X\)\."),
        ("learn p(X) => q(X). learn q(X) => s(X). learn q(X) => s(X).", "it has 2 and here are 3"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_state_of_other_statements_is_refused(rules, message, strict):
    model = nn.Sequential(LogicLayer(rules))
    before = model[0].weights.learned.tolist()
    with torch.no_grad():
        state = nn.Sequential(LogicLayer(LEARNED, initial_weight=9.0)).state_dict()
    with pytest.raises(DataError, match=message):
        model.load_state_dict(state, strict=strict)
    assert model[0].weights.learned.tolist() == before


def test_layers_without_learned_weights_have_no_state():
    layer = LogicLayer("1.0 p(X) => q(X).", evidence={"p": torch.ones(2, dtype=torch.bool)})
    assert not layer.state_dict()
    layer.load_state_dict({})


# Dtypes and devices

FLOATS = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])


@settings(max_examples=30)
@given(one=FLOATS, other=FLOATS, learned=st.booleans())
def test_mixed_dtypes_are_promoted_and_come_back(one, other, learned):
    layer = LogicLayer(f"{'learn' if learned else '1.0'} p(X) & r(X, Y) => p(Y).", iterations=2)
    logits = {"p": torch.randn(3, dtype=one), "r": torch.randn(3, 3, dtype=other)}
    joint = torch.promote_types(one, other)
    out = layer(logits, mask={"entity": torch.tensor([True, True, False])})
    wanted = layer(
        {name: tensor.to(joint) for name, tensor in logits.items()},
        mask={"entity": torch.tensor([True, True, False])},
    )
    for name, tensor in logits.items():
        assert out[name].dtype == tensor.dtype
        torch.testing.assert_close(out[name], wanted[name].to(tensor.dtype))
    (out["p"].sum() + out["r"].sum()).requires_grad_().backward()


def test_autocast_keeps_dtypes():
    layer = LogicLayer("learn p(X) & r(X, Y) => p(Y).")
    logits = {"p": torch.randn(3, requires_grad=True), "r": torch.randn(3, 3)}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(logits)
    assert out["p"].dtype == out["r"].dtype == torch.float32
    out["p"].sum().backward()
    torch.testing.assert_close(out["p"], layer(logits)["p"], rtol=0.02, atol=0.02)


def test_devices_must_agree_and_evidence_follows():
    layer = LogicLayer("1.0 p(X) & r(X, Y) => p(Y).")
    with pytest.raises(DataError, match="logits of p are on cpu and those of r on meta; move them to one device"):
        layer({"p": torch.zeros(2), "r": torch.zeros(2, 2, device="meta")})
    with pytest.raises(DataError, match="must be floating-point"):
        layer({"p": torch.zeros(2), "r": torch.zeros(2, 2, dtype=torch.long)})


# Evidence given once


def test_stored_evidence_is_that_of_a_call_and_a_call_overrides_it():
    rules = "2.0 p(X) & r(X, Y) => p(Y). closed r."
    one, other = torch.rand(3, 3) < 0.5, torch.rand(3, 3) < 0.5
    layer, stored = LogicLayer(rules), LogicLayer(rules, evidence={"r": one})
    logits = {"p": torch.randn(2, 3)}
    assert torch.equal(stored(logits)["p"], layer(logits, {"r": one})["p"])
    assert torch.equal(stored(logits, {"r": other})["p"], layer(logits, {"r": other})["p"])
    seen = (torch.tensor([True, False, False]), torch.tensor([True, False, False]))
    partly = LogicLayer(rules, evidence={"r": one, "p": seen})
    assert torch.equal(partly(logits)["p"], layer(logits, {"r": one, "p": seen})["p"])
    assert not partly.state_dict() and len([*partly.buffers()]) == 3
    assert {buffer.device.type for buffer in partly.to("meta").buffers()} == {"meta"}
    assert torch.equal(copy.deepcopy(stored)(logits)["p"], stored(logits)["p"])
    with pytest.raises(RulewrightError, match="unknown predicate 'rr'"):
        LogicLayer(rules, evidence={"rr": one})
    with pytest.raises(DataError, match="evidence of r is a tensor"):
        LogicLayer(rules, evidence={"r": [1, 2]})


def test_observed_logits_in_several_batch_dimensions():
    layer = LogicLayer("1.0 p(X) => q(X).")
    observed = torch.tensor([True, False, True])
    out = layer({"p": torch.zeros(2, 4, 3), "q": torch.zeros(2, 4, 3)}, {"p": observed})
    assert out["p"][1, 3].tolist() == [1e4, -1e4, 1e4]
    torch.testing.assert_close(out["q"], observed.float().expand(2, 4, 3))


# Memory


def measure_peak(work, path):
    """Return the most bytes that tensors held at one time, by what was allocated and freed."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    steps = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]")
    return max(accumulate(size for _, size in steps))


CHANCE = random.Random(0)
FIFTY = " ".join(
    f"0.5 p{CHANCE.randrange(10)}(A, B) & p{CHANCE.randrange(10)}(B, C) => p{CHANCE.randrange(10)}(A, C)."
    for _ in range(50)
)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "rules",
    [
        FIFTY,
        "learn p(A, B) & p(B, C) => p(A, C). learn p(A, B) => q(A).",
        "hard p(A, B) & p(B, C) => p(A, C).",
        "0.5 p(A, B) & p(B, C) & p(C, D) => p(A, D).",
        "predicate tag(t) in {a, b, c}. 1.5 n(T, U) & tag(U) in {a} => tag(T) in {a, b}. closed n.",
    ],
)
@pytest.mark.filterwarnings("ignore::rulewright.errors.RulewrightWarning")
def test_the_memory_that_a_plan_states_is_what_a_call_holds(rules, masked, tmp_path):
    size, iterations = 120, 3
    layer = LogicLayer(rules, iterations=iterations)
    closed, (type_name,) = layer.grounding.closed, layer.grounding.types
    batch = (2,) if masked else ()
    logits = {
        name: torch.randn(
            *batch, *[size] * declaration.arity, *([len(declaration.classes)] if declaration.classes else [])
        )
        for name, declaration in layer.grounding.predicates.items()
        if name not in closed
    }
    evidence = {name: torch.rand(size, size) < 0.5 for name in closed}
    mask = {type_name: torch.rand(2, size) < 0.9} if masked else None
    plan = layer.planner.plan(read_inputs(layer.grounding, logits, evidence, mask).shape)
    learns_weights = layer.weights.learned is not None

    def step():
        leaves = {name: tensor.requires_grad_() for name, tensor in logits.items()}
        sum(tensor.sum() for tensor in layer(leaves, evidence, mask).values()).backward()

    def call():
        with torch.no_grad():
            layer(logits, evidence, mask)

    for work, training in ((call, False), (step, True)):
        work()  # what is kept from call to call is there
        for tensor in logits.values():
            tensor.grad = None
        stated = plan.memory(
            batch=2 if masked else 1, iterations=iterations, training=training, learns_weights=learns_weights
        )
        assert stated / measure_peak(work, tmp_path / "trace.json") == pytest.approx(1, abs=0.25)


def test_the_limit_is_that_of_the_device():
    layer = LogicLayer("1.0 r(A, B) & r(B, C) => r(A, C).")
    assert layer.memory_limit is None
    assert usual_limit(torch.device("cpu")) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


# Stacked relations and distinct entities


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), distinct=st.sampled_from([None, False]), size=st.integers(1, 4))
def test_stacked_relations_are_a_shorthand(seed, distinct, size):
    torch.manual_seed(seed)
    rules = "1.0 a(X, Y) & b(Y, Z) => a(X, Z). hard a(X, Y) => b(Y, X). 0.5 a(X, Y) & person(X). closed person."
    person = {"person": torch.rand(size) < 0.5}
    stacked = torch.randn(2, 3, size, size, 2)
    mask = torch.rand(2, 3, size) < 0.8
    layer = LogicLayer(rules, relations=["b", "a"], distinct=distinct)
    out = layer(stacked, person, mask)
    plain = LogicLayer(rules, distinct=distinct is None)(
        {"b": stacked[..., 0], "a": stacked[..., 1]}, person, {"entity": mask}
    )
    assert out.shape == stacked.shape
    torch.testing.assert_close(out, torch.stack([plain["b"], plain["a"]], -1))
    if distinct is None:
        torch.testing.assert_close(torch.diagonal(out, 0, 2, 3), torch.diagonal(stacked, 0, 2, 3))
    stored = LogicLayer(rules, relations=["b", "a"], distinct=distinct, evidence=person)
    torch.testing.assert_close(stored(stacked, mask), out)


def test_bad_calls():
    layer = LogicLayer("1.0 r(X, Y) => r(Y, X).")
    stacked = LogicLayer("1.0 r(X, Y) => r(Y, X).", relations=["r", "s"])
    for call, message in (
        (lambda: layer(torch.zeros(2, 2)), "one tensor needs relations"),
        (lambda: layer({"r": torch.zeros(2, 2)}, mask=torch.ones(2).bool()), "one tensor needs relations"),
        (lambda: layer({"r": torch.zeros(2, 2)}, torch.ones(2).bool()), "evidence is given by predicate"),
        (lambda: stacked(torch.zeros(2, 2, 3)), r"shape \[B, n, n, 2\]"),
        (lambda: LogicLayer("1.0 r(X, X).", distinct=True), "an entity with itself is in no grounding"),
    ):
        with pytest.raises(DataError, match=message):
            call()


DISTINCT = [
    "r(A, B) & r(B, C) => r(A, C)",
    "r(A, B) & r(B, C) & r(C, D) => r(A, D)",
    "p(A) & p(B) & s(A, U0)",
    "r(A, '1') => p(A)",
    "label(A) in {x} <=> label(B) in {y, z}",
    "w(A, U0, B) | !p(A)",
    "p(A) & A != B => p(B)",
]


@pytest.mark.filterwarnings("ignore::rulewright.errors.RulewrightWarning")
@settings(max_examples=30)
@given(text=st.sampled_from(DISTINCT), seed=st.integers(0, 10**6), size=st.integers(1, 3))
def test_distinct_variables_equal_mean_field(text, seed, size):
    formula = parse_formula(text)
    if size < 3 and "'1'" in text:
        size = 3
    domains = {"t": [str(i + 1) for i in range(size)], "u": ["a", "b"]}
    check_against_mean_field([(1.5, formula)], PREDICATES, domains, seed, distinct=True)


def check_against_mean_field(weighted, predicates, domains, seed, *, distinct):
    names = {part for _, formula in weighted for part in predicates if f"{part}" in rw_names(formula)}
    declared = {name: predicates[name] for name in predicates if name in names}
    used = {type_name for declaration in declared.values() for type_name in declaration.types}
    rules = RuleSet(
        [WeightedFormula(formula, "soft", weight) for weight, formula in weighted], predicates=declared.values()
    )
    layer = LogicLayer(
        rules, {name: names for name, names in domains.items() if name in used}, iterations=2, distinct=distinct
    )
    torch.manual_seed(seed)
    logits = {
        name: torch.randn(
            [len(domains[t]) for t in declaration.types] + ([len(declaration.classes)] if declaration.classes else []),
            dtype=torch.float64,
        )
        for name, declaration in declared.items()
    }
    potentials = {}
    for name, declaration in declared.items():
        for index in (
            torch.cartesian_prod(*(torch.arange(len(domains[t])) for t in declaration.types)).reshape(
                -1, declaration.arity
            )
            if declaration.arity
            else [torch.zeros(0, dtype=torch.long)]
        ):
            place = tuple(index.tolist())
            value = logits[name][place]
            key = (name, tuple(domains[t][i] for t, i in zip(declaration.types, place, strict=True)))
            potentials[key] = value.tolist() if declaration.classes else [0.0, value.item()]
    wanted = mean_field(weighted, declared, domains, potentials, {}, iterations=2, distinct=distinct)
    found = layer(logits)
    for (name, args), values in wanted.items():
        place = tuple(domains[t].index(a) for t, a in zip(declared[name].types, args, strict=True))
        got = found[name][place]
        if declared[name].classes:
            torch.testing.assert_close(got.softmax(-1), torch.tensor(values, dtype=torch.float64).softmax(-1))
        else:
            assert got.item() == pytest.approx(values[1] - values[0])


def rw_names(formula):
    return {str(unit.predicate) for unit in units(formula) if not isinstance(unit, Comparison)}


# Propositions


PROPOSITIONS = {
    declaration.name: declaration
    for declaration in (
        PredicateDeclaration("rain", ()),
        PredicateDeclaration("wet", ()),
        PredicateDeclaration("sky", (), ("blue", "grey")),
        PredicateDeclaration("open", ("t",)),
    )
}


PROPOSITIONAL = [
    "rain => wet",
    "rain & open(X) => wet",
    "sky in {grey} & !rain => open('2')",
    "sky in {grey} & open(X) & open(Y) => wet",
]


@settings(max_examples=30)
@given(text=st.sampled_from(PROPOSITIONAL), seed=st.integers(0, 10**6))
def test_propositions_equal_mean_field(text, seed):
    check_against_mean_field([(1.2, parse_formula(text))], PROPOSITIONS, {"t": ["1", "2"]}, seed, distinct=False)


def test_propositions_in_a_batch():
    layer = LogicLayer("2.0 rain => wet.", iterations=1)
    logits = {"rain": torch.randn(5), "wet": torch.randn(5)}
    out = layer(logits)
    torch.testing.assert_close(out["wet"], logits["wet"] + 2.0 * logits["rain"].sigmoid())
    alone = layer({name: tensor[3] for name, tensor in logits.items()})
    torch.testing.assert_close(out["rain"][3], alone["rain"])
