from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
from learn.lnn.plain_templates import Plain

from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, RulewrightError
from rulewright.learn.lnn.grounding import ground
from rulewright.learn.lnn.network import NetworkOptions, TemplateNetwork
from rulewright.learn.lnn.operators import Attention, Pred
from rulewright.learn.lnn.template import find_roots, read_templates, resolve

TOY = KnowledgeBase.from_facts([("a", "1", "2"), ("a", "1", "5"), ("b", "1", "2"), ("c", "2", "5")])
FIGURE_3C = """
    template r(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in {a, b}, ?Q in {c}.
    template s(X, Z) :- r(X, Z) ; ?O(X, Z) where ?O in {a, b}.
"""


def labels(kb, columns):
    return set(zip(*(kb.domains["entity"].labels_of(column).tolist() for column in columns), strict=True))


def test_the_toy_facts_of_figure_3d():
    program = resolve(FIGURE_3C, TOY)
    found = {name: labels(TOY, table) for name, table in ground(program, TOY).tables.items()}
    leaves = {str(node.unit): found[name] for name, node in program.nodes.items() if hasattr(node, "unit")}
    assert leaves["?P(X, Y)"] == {("1", "2"), ("1", "5")}
    assert leaves["?Q(Y, Z)"] == {("2", "5")}
    assert leaves["?O(X, Z)"] == {("1", "2"), ("1", "5")}
    assert found["head r"] == {("1", "5")}
    assert found["head s"] == {("1", "5"), ("1", "2")}


TEMPLATES = {
    "chain": "template t(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in *, ?Q in {a, t}.",
    "one template": "template t(X, Z) :- ?P(X, Y), ?Q(Z, Y) ; ?O(X, Z) where ?P in {a, b}, ?Q in {b}, ?O in *.",
    "dag": """
        template r(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in {a, b}, ?Q in {a, b}.
        template u(X) :- r(X, Y), ?R(Y) where ?R in {c}.
        template t(X, Z) :- r(X, Z), u(Z) ; ?O(X, Z), u(X) where ?O in {a, b, r}.
    """,
    "n-ary": "template w(X, Y, Z) :- ?P(X, Y), ?Q(X, Y, Z), !?R(Z, U, U), c(U) where ?P in *, ?Q in {d}, ?R in {d}.",
    "unary": "template v(X) :- ?P(X, Y), ?Q(Y, X) ; c(X), ?R(X, 'e1', Z) where ?P in *, ?Q in {a, b}, ?R in *.",
    "negation": """
        free(X, Y) :- c(X), c(Y), !b(X, Y).
        template t(X, Y) :- ?P(X, Y), !?Q(Y, X) where ?P in {free, a}, ?Q in {a, b}.
    """,
    "nested": "template v(X) :- c(X), (?P(X, Y), (?Q(Y, Z) ; !?P(Y, X)) ; !?Q(X, X)) where ?P in {a, b}, ?Q in {a, t}.",
    "comparison": """
        template t(X, Z) :- ?P(X, Y), age(Y, A), age(Z, B), A > B, X != Z, (?Q(Z) ; A >= 2) where ?P in *, ?Q in *.
    """,
    "clauses": """
        template t(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in *, ?Q in *.
        template t(X, Y) :- ?P(Y, X) where ?P in {a, b, t}.
    """,
}
TARGETS = {"n-ary": ("w", 3), "unary": ("v", 1), "nested": ("v", 1)}


def random_facts(seed: int) -> KnowledgeBase:
    draw = random.Random(seed)
    names = [f"e{number}" for number in range(4)]
    facts: list[tuple] = [("known", name) for name in names]
    for predicate, arity, share in (("a", 2, 0.3), ("b", 2, 0.3), ("t", 2, 0.3), ("c", 1, 0.6), ("d", 3, 0.15)):
        every = [(predicate, *args) for args in itertools.product(names, repeat=arity)]
        facts += [each for each in every if draw.random() < share] or every[:1]
    facts += [("age", name, draw.randrange(4)) for name in names]
    return KnowledgeBase.from_facts(facts)


def with_random_parameters(network: TemplateNetwork, seed: int) -> TemplateNetwork:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key in network.operators:
            operator = network.operator(key)
            for parameter in operator.parameters():
                low, spread = (-1.0, 3.0) if isinstance(operator, Attention) else (0.0, 0.2)
                if isinstance(operator, Pred):
                    low, spread = 0.3, 0.8
                parameter.copy_(low + spread * torch.rand(parameter.shape, generator=generator).double())
    return network.eval()


OPTIONS = [
    NetworkOptions(),
    NetworkOptions(reduction="sum"),
    NetworkOptions(connectives="product", leaves="attention"),
    NetworkOptions(connectives="lukasiewicz", reduction="sum"),
]


def every_pair(plain, kb, arity):
    every = list(itertools.product(plain.entities, repeat=arity))
    return every, [
        np.array([kb.domains["entity"].index_of(each) for each in column]) for column in zip(*every, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_truth_values_are_those_of_brute_force(name):
    target, arity = TARGETS.get(name, ("t", 2))
    templates = read_templates(TEMPLATES[name])
    true = 0
    for seed in range(5):
        kb = random_facts(seed)
        program = resolve(templates, kb, target)
        network = with_random_parameters(TemplateNetwork(program, OPTIONS[seed % 4]), seed)
        grounding = ground(program, kb, hide=False)
        plain = Plain(templates, kb, network, target)
        every, ids = every_pair(plain, kb, arity)
        with torch.no_grad():
            found = torch.cat([network(grounding), torch.zeros(1)])[grounding.find(ids)]
        wanted = torch.tensor([plain.score(*args, hide=False) for args in every], dtype=torch.float64)
        torch.testing.assert_close(found, wanted, atol=1e-9, rtol=0)
        true += int((wanted > 0).sum())
    assert true > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chain", "one template", "nested", "clauses", "comparison"])
@pytest.mark.parametrize("seed", range(4))
def test_a_fact_is_no_evidence_for_itself(name, seed):
    kb = random_facts(seed + 10)
    target, arity = TARGETS.get(name, ("t", 2))
    templates = read_templates(TEMPLATES[name])
    program = resolve(templates, kb, target)
    network = with_random_parameters(TemplateNetwork(program, OPTIONS[seed]), seed)
    grounding = ground(program, kb)
    assert grounding.partly_hidden == ()
    plain = Plain(templates, kb, network, target)
    every, ids = every_pair(plain, kb, arity)
    wanted = torch.tensor([plain.score(*args) for args in every], dtype=torch.float64)
    with torch.no_grad():
        found = torch.cat([network(grounding), torch.zeros(1)])[grounding.find(ids)]
        torch.testing.assert_close(found, wanted, atol=1e-9, rtol=0)
        some = tuple(column[::3] for column in ids)
        fewer = ground(program, kb, wanted=some)
        found = torch.cat([network(fewer), torch.zeros(1)])[fewer.find(some)]
    torch.testing.assert_close(found, wanted[::3], atol=1e-9, rtol=0)
    assert len(fewer.facts[0]) <= len(grounding.facts[0])


def test_an_inverse_edge_is_hidden_too():
    kb = KnowledgeBase.from_triples([("x", "r", "z"), ("z", "r_inverse", "x"), ("x", "q", "z")])
    program = resolve("template r(X, Z) :- ?P(X, Z) ; ?Q(Z, X) where ?P in *, ?Q in *.", kb)
    network = TemplateNetwork(program, NetworkOptions(start=0.25)).eval()
    plain, hidden = (ground(program, kb, hide=hide, inverses={"r": "r_inverse"}) for hide in (False, True))
    with torch.no_grad():
        place = hidden.find(kb.columns("r"))
        for one in (plain, hidden):
            assert one.find(kb.columns("r")).item() >= 0
        assert network(hidden)[place] < network(plain)[plain.find(kb.columns("r"))]
        leaf = network.operator("0_or")(torch.tensor([0.25, 0.0]).double())
        assert network(hidden)[place].item() == pytest.approx(leaf.item())


def test_hiding_that_cannot_be_exact_is_named():
    kb = random_facts(0)
    text = "template r(X, Y) :- ?P(X, Y), c(Y) where ?P in {t}. template t(X, Z) :- r(X, Y), ?Q(Y, Z) where ?Q in {a}."
    assert len(ground(resolve(text, kb, "t"), kb).partly_hidden) == 1


def test_gradients_flow_to_every_operator():
    kb = random_facts(3)
    program = resolve(TEMPLATES["dag"], kb, "t")
    network = TemplateNetwork(program, NetworkOptions(start=0.3))
    network(ground(program, kb)).sum().backward()
    for key in network.operators:
        assert any(
            each.grad is not None and each.grad.abs().sum() > 0 for each in network.operator(key).parameters()
        ), key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("template t(X, Y) :- ?P(X, Y) where ?P in {}.", "found '}'"),
        ("template t(X, Z) :- ?P(X, Y) where ?P in *.", "head variable Z is not bound"),
        ("template new(X) :- ?P(X, Y, Z, U) where ?P in *.", "no predicate of the facts has 4 arguments"),
        ("template new(X) :- ?P(X) where ?P in {a}.", "a has 2 arguments and cannot be"),
        ("template new(X) :- ?P(X) where ?P in {nothing}.", "unknown predicate 'nothing'"),
        ("template new(X) :- nothing(X), ?P(X) where ?P in *.", "unknown predicate 'nothing'"),
        ("template t(X, X) :- ?P(X) where ?P in *.", "different variables"),
        ("p(X) :- q(X), ?P(X) where ?P in *. template q(X) :- p(X).", ""),
        ("template p(X) :- q(X). template q(X) :- p(X), c(X).", "recursive|none apart"),
        ("2.0 a(X, Y) => b(X, Y).", "no formula"),
        ("a(X, Y) :- b(X, Y).", "there is no template"),
        ("template new(X) :- age(X, A), ?P(A) where ?P in {c}.", "has type number elsewhere"),
        ("template new(X) :- ?P(X, Y), Y > 2 where ?P in *.", "compares numbers"),
        ("template new(X) :- c(X), (b(Y, Y) ; c(X)).", "shares no variable"),
        ("template new(X) :- c(X), c('e1').", "has no variable"),
    ],
)
def test_what_cannot_work_is_said(text, message):
    kb = random_facts(0)
    with pytest.raises((DataError, RulewrightError), match=message or None):
        ground(resolve(text, kb), kb)


def test_types_decide_what_any_predicate_means():
    builder = KnowledgeBase.from_facts([("age", "ann", 3), ("likes", "ann", "bob")])
    program = resolve("template t(X) :- ?P(X, Y), age(Y, A), ?Q(X, A) where ?P in *, ?Q in *.", builder)
    assert [each.inputs for each in program.neurons.values()][:2] == [("likes",), ("age",)]


def test_roots_are_heads_that_nothing_else_uses():
    assert find_roots(read_templates(FIGURE_3C)) == ("s",)
