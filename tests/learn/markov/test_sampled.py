"""Sampled training: what is drawn, and with what probability, against enumeration; messages; checkpoints."""

from __future__ import annotations

import random
from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.layer.plain_mean_field import GroundAtom, ground_atoms, groundings, holds

import rulewright as rw
from rulewright.data.builder import KnowledgeBaseBuilder
from rulewright.errors import DataError
from rulewright.inject.atom_space import statement_formulas
from rulewright.learn.markov.facts import GroundFacts, declare_types
from rulewright.learn.markov.learner import MarkovLogic
from rulewright.learn.markov.network import MarkovNetwork
from rulewright.learn.markov.sampled import GroundBatch, GroundingSampler
from rulewright.learn.markov.sampled_training import SampledTraining
from rulewright.logic import Comparison, Variable, units

DOMAINS = {"person": ["ann", "bob", "cid"], "town": ["bonn", "rome"]}
RULES = rw.parse_rules("""
    predicate smokes(person).
    predicate friend(person, person).
    predicate lives(person, town).
    1.2 smokes(X) & friend(X, Y) => smokes(Y).
    -0.4 friend(X, Y) & friend(Y, Z) => friend(X, Z).
    0.7 friend(X, Y) <=> friend(Y, X).
    0.9 lives(X, T) & lives(Y, T) & X != Y => friend(X, Y).
    0.5 lives(X, bonn) => smokes(X).
    0.3 !friend(X, X).
    0.8 :: smokes(X) :- lives(X, rome) ; friend(X, Y), smokes(Y).
""")


def facts_of(seed: int, *, share: float = 0.4) -> rw.KnowledgeBase:
    draw = random.Random(seed)
    builder = KnowledgeBaseBuilder(RULES.predicates)
    for type_name, labels in DOMAINS.items():
        for label in labels:
            builder.entity(label, type=type_name)
    for declaration in RULES.predicates:
        for args in product(*(DOMAINS[type_name] for type_name in declaration.types)):
            if draw.random() < share:
                builder.add(declaration.name, args, truth=draw.random() < 0.5)
    return builder.build()


def ground(rules: rw.RuleSet, kb: rw.KnowledgeBase, closed: tuple[str, ...] = ()) -> GroundFacts:
    facts = GroundFacts(kb, declare_types(rules, kb))
    facts.close(closed)
    return facts


def formulas_of(rules: rw.RuleSet):
    return [(index, formula) for index, statement in enumerate(rules) for formula in statement_formulas(statement)]


def entities_of(facts: GroundFacts, formula):
    """Return the variables of a formula, in the order of its atoms, with their types."""
    types = {}
    for unit in units(formula):
        if not isinstance(unit, Comparison):
            for term, type_name in zip(unit.args, facts.declared[str(unit.predicate)].types, strict=True):
                if isinstance(term, Variable):
                    types[term] = type_name
    return types


def exact_probabilities(facts: GroundFacts, formula, bias: float) -> dict[tuple[str, ...], float]:
    """Return how probable each assignment is, by going through all orders of the atoms and all choices."""
    kb, types = facts.kb, entities_of(facts, formula)
    patterns = [unit for unit in dict.fromkeys(units(formula)) if not isinstance(unit, Comparison)]
    total: Counter[tuple[str, ...]] = Counter()

    def go_on(left, binding, chance):
        if not left:
            total[tuple(binding[variable] for variable in types)] += chance
            return
        atom, rest = left[0], left[1:]
        free = list(dict.fromkeys(term for term in atom.args if isinstance(term, Variable) and term not in binding))
        if not free:
            go_on(rest, binding, chance)
            return
        agreeing = []
        for truth in (True, False):
            for args in kb.tuples(str(atom.predicate), truth=truth):
                new = dict(binding)
                if all(
                    new.setdefault(term, arg) == arg if isinstance(term, Variable) else str(term) == arg
                    for term, arg in zip(atom.args, args, strict=True)
                ):
                    agreeing.append(new)
        by_fact = bias if agreeing else 0.0
        for new in agreeing:
            go_on(rest, new, chance * by_fact / len(agreeing))
        choices = list(product(*(DOMAINS[types[variable]] for variable in free)))
        for choice in choices:
            go_on(rest, {**binding, **dict(zip(free, choice, strict=True))}, chance * (1 - by_fact) / len(choices))

    orders = list(permutations(patterns))
    for order in orders:
        go_on(list(order), {}, 1 / len(orders))
    return dict(total)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bias", [0.0, 0.6, 0.9])
def test_groundings_are_drawn_as_probably_as_said(seed, bias):
    facts = ground(RULES, facts_of(seed))
    sampler = GroundingSampler(facts, RULES, batch_size=16, bias=bias, seed=0)
    count = 20_000
    for pattern, (_, formula) in zip(sampler._patterns, formulas_of(RULES), strict=True):
        rows = sampler._instantiate(pattern, count, np.random.default_rng(seed))
        labels = [facts.kb.domains[name].labels_of(rows[:, i]) for i, name in enumerate(pattern.types)]
        found = Counter(zip(*labels, strict=True))
        wanted = exact_probabilities(facts, formula, bias)
        assert sum(wanted.values()) == pytest.approx(1)
        assert set(found) <= set(wanted)
        for assignment, chance in wanted.items():
            error = (chance * (1 - chance) / count) ** 0.5
            assert abs(found[assignment] / count - chance) <= 5 * error + 1e-9


def train(kb: rw.KnowledgeBase, rules: rw.RuleSet = RULES, **options) -> SampledTraining:
    model = MarkovLogic(rules, training="sampled", **options)
    facts = ground(rules, kb, tuple(model.closed))
    return SampledTraining(MarkovNetwork(facts, model))


def brute_messages(training: SampledTraining, near, chances, closed) -> dict[GroundAtom, list[float]]:
    """Return the message to each class of each open atom: of all groundings whose atoms are among those near."""
    network = training.network
    facts = network.facts
    every = {name: declared for name, declared in facts.declared.items() if name in facts.used}
    evidence = known_atoms(facts)
    messages = {atom: [0.0] * len(classes) for atom, classes in chances.items()}
    for (index, formula), around in zip(formulas_of(network.statements), near, strict=True):
        weight = network.weights.value(index)
        for binding in groundings(formula, every, DOMAINS):
            own = sorted(set(ground_atoms(formula, binding)))
            if not around.issuperset(own):
                continue
            states = [
                [evidence[atom]] if atom in evidence else [0] if atom[0] in closed else range(len(chances[atom]))
                for atom in own
            ]
            for values in product(*states):
                world = dict(zip(own, values, strict=True))
                if not holds(formula, binding, world, every):
                    continue
                for atom in own:
                    if atom in chances:
                        others = [chances[other][world[other]] for other in own if other in chances and other != atom]
                        messages[atom][world[atom]] += weight * float(np.prod(others))
    return messages


def known_atoms(facts: GroundFacts) -> dict[GroundAtom, int]:
    known = {}
    for name in facts.declared:
        columns, values = facts.known(name)
        labels = [
            facts.kb.domains[type_name].labels_of(column)
            for type_name, column in zip(facts.declared[name].types, columns, strict=True)
        ]
        known |= {(name, args): int(value) for *args, value in zip(*labels, values, strict=True) for args in [(*args,)]}
    return known


def batch_atoms(facts: GroundFacts, batch: GroundBatch) -> list[GroundAtom]:
    return [
        (name, tuple(args))
        for name, columns in batch.atoms.items()
        for args in zip(
            *(
                facts.kb.domains[type_name].labels_of(column)
                for type_name, column in zip(facts.declared[name].types, columns, strict=True)
            ),
            strict=True,
        )
    ]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), closed=st.sampled_from([(), ("lives",)]), batch_size=st.sampled_from([3, 12, 60]))
def test_messages_are_of_all_groundings_among_the_atoms_of_a_batch(seed, closed, batch_size):
    training = train(facts_of(seed), batch_size=batch_size, seed=seed, closed=closed)
    sampler, facts = training.sampler, training.network.facts
    kept = sampler._draw_groundings(np.random.default_rng([seed, 1]), sampler.block_size)
    draw = random.Random(seed)
    for number, batch in enumerate(sampler.batches(0)[:4]):
        assert batch.drawn == sum(int((ids == number).sum()) for _, ids in kept) <= batch_size
        near = []
        for (_, formula), pattern, (rows, ids) in zip(formulas_of(RULES), sampler._patterns, kept, strict=True):
            own = rows[ids == number]
            assert len(np.unique(own, axis=0)) == len(own)
            labels = [facts.kb.domains[name].labels_of(own[:, i]) for i, name in enumerate(pattern.types)]
            variables = entities_of(facts, formula)
            bindings = [dict(zip(variables, values, strict=True)) for values in zip(*labels, strict=True)]
            near.append({atom for binding in bindings for atom in ground_atoms(formula, binding)})
        atoms = batch_atoms(facts, batch)
        assert len(set(atoms)) == len(atoms)
        known = known_atoms(facts)
        logits = {
            name: torch.tensor([draw.uniform(-2, 2) for _ in columns[0]], dtype=torch.float64)
            for name, columns in batch.atoms.items()
        }
        values = torch.cat([*logits.values()])
        chances = {
            atom: [1 - float(chance), float(chance)] for atom, chance in zip(atoms, torch.sigmoid(values), strict=True)
        }
        unseen = {atom for around in near for atom in around} - set(known) - set(chances)
        unseen = {atom for atom in unseen if atom[0] not in closed}
        chances |= {atom: [0.5, 0.5] for atom in unseen}  # only in groundings that are true whatever holds
        wanted = brute_messages(training, near, chances, closed)
        found = training.messages(batch, logits)
        for atom, message in zip(atoms, found, strict=True):
            assert float(message[1] - message[0]) == pytest.approx(wanted[atom][1] - wanted[atom][0], abs=1e-5)
        for atom in unseen:
            assert wanted[atom][1] == pytest.approx(wanted[atom][0], abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_distillation_after_one_iteration(seed):
    """Proposition K.1 with a prior and entropy: the gradient by λ is Q (1 − Q) (λ − prior − message)."""
    training = train(facts_of(seed), prior=-0.5, batch_size=40)
    batch = training.sampler.batches(0)[0]
    draw = np.random.default_rng(seed)
    logits = {
        name: torch.tensor(draw.normal(size=len(columns[0])), requires_grad=True)
        for name, columns in batch.atoms.items()
    }
    training.bound(batch, logits).backward()
    messages = training.messages(batch, logits)
    values = torch.cat([*logits.values()]).detach()
    chances = torch.sigmoid(values)
    wanted = chances * (1 - chances) * (-0.5 + messages[:, 1] - messages[:, 0] - values)
    found = torch.cat([given.grad for given in logits.values()])
    assert torch.allclose(found, wanted, atol=1e-6)


def test_batches_are_filled_and_repeatable():
    kb = rw.KnowledgeBase.from_facts([("friend", f"p{n}", f"p{(n * 7 + 3) % 50}") for n in range(50)])
    rules = rw.parse_rules("1.0 smokes(X) & friend(X, Y) => smokes(Y). 0.5 smokes(X).")
    one, other = (train(kb, rules, batch_size=20, seed=5).sampler for _ in range(2))
    for mine, theirs in zip(one.batches(3), other.batches(3), strict=True):
        assert mine.drawn == 20
        assert np.array_equal(mine.positions, theirs.positions)
        assert all(
            np.array_equal(column, same)
            for name in mine.atoms
            for column, same in zip(mine.atoms[name], theirs.atoms[name], strict=True)
        )
    small = train(kb, rules, batch_size=10_000, closed=["friend"])
    assert small.sampler.batches(0)[0].drawn == 100
    assert small.note == "batches hold about 100 groundings, not 10,000: the facts leave no more open"
    assert train(kb, rules, batch_size=20, seed=5).note == ""


def test_groundings_keep_within_worlds():
    builder = KnowledgeBaseBuilder()
    for world, size in (("one", 3), ("two", 5)):
        builder.world(world)
        for index in range(size - 1):
            builder.add("friend", [f"{world}{index}", f"{world}{index + 1}"], world=world)
        builder.add("smokes", [f"{world}0"], world=world)
    kb = builder.build()
    rules = rw.parse_rules("1.5 smokes(X) & friend(X, Y) => smokes(Y). -0.2 smokes(X) & smokes(Y).")
    sampler = train(kb, rules, batch_size=30).sampler
    worlds = kb.entity_worlds
    seen = set()
    for batch in sampler.batches(0):
        for columns in batch.atoms.values():
            of_columns = np.stack([worlds[column] for column in columns])
            assert (of_columns == of_columns[0]).all()
            seen |= set(of_columns[0].tolist())
    assert seen == {0, 1}
    model = MarkovLogic(rules, training="sampled", epochs=1, batch_size=30).fit(kb)
    assert len(model.predict(["smokes"])) == 6
    with pytest.raises(DataError, match="different worlds"):
        model.predict([("friend", "one0", "two1")])


def test_a_table_becomes_mean_field():
    kb = rw.KnowledgeBase.from_facts([("smokes", "ann"), ("friend", "ann", "bob"), ("friend", "bob", "cid")])
    rules = rw.parse_rules("2.0 smokes(X) & friend(X, Y) => smokes(Y).")
    model = MarkovLogic(rules, training="sampled", closed=["friend"], prior=-1.0, epochs=5).fit(kb)
    marginals = model.predict(["smokes(bob)", "smokes(cid)", "smokes(ann)"])
    logits = {str(marginal): marginal.logit for marginal in marginals}
    assert logits["smokes(ann)"] == 1e4
    # one message each of weight 2: to bob from ann and cid, to cid from bob
    bob, cid = 0.0, 0.0
    for _ in range(200):
        bob, cid = -1 + 2 - 2 * (1 - 1 / (1 + np.exp(-cid))), -1 + 2 / (1 + np.exp(-bob))
    assert logits["smokes(bob)"] == pytest.approx(bob, abs=0.05)
    assert logits["smokes(cid)"] == pytest.approx(cid, abs=0.05)
    assert len(model.losses_["encoder"]) == 5


@pytest.mark.parametrize(
    ("encoder", "training", "epochs"),
    [("none", "sampled", 3), ("embedding", "sampled", 3), ("gnn", "sampled", 3), ("gnn", "distill", 300),
     ("embedding", "end_to_end", 300)],
)  # fmt: skip
def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path, encoder, training, epochs):
    kb = facts_of(1)
    options = {"encoder": encoder, "training": training, "epochs": epochs, "batch_size": 20, "size": 4, "slices": 2}
    options["learn_weights"] = training == "end_to_end"
    options["weight_epochs"] = 2
    whole = MarkovLogic(RULES, **options).fit(kb)
    folder = tmp_path / "run"

    def stop(stage: str, done: int, total: int) -> None:
        if stage != "learning weights" and done == 130:
            assert total == 300
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MarkovLogic(RULES, **options, progress=stop).fit(kb, folder)
    resumed = MarkovLogic(RULES, **options).fit(kb, folder)
    assert str(resumed.predict(["smokes", "friend"])) == str(whole.predict(["smokes", "friend"]))
    assert resumed.losses_ == whole.losses_
    with pytest.raises(DataError, match="another run"):
        MarkovLogic(RULES, **{**options, "bias": 0.5}).fit(kb, folder)
    with pytest.raises(DataError, match="another run"):
        MarkovLogic(RULES, **options).fit(facts_of(2), folder)


@pytest.mark.parametrize("encoder", ["embedding", "gnn"])
def test_encoders_score_atoms_alone_as_all_together(encoder):
    kb = facts_of(4)
    rules = rw.parse_rules("predicate meet(person, person, town). 1.0 meet(X, Y, T) & smokes(X) => lives(Y, T).")
    facts = ground(rules, kb)
    network = MarkovNetwork(facts, MarkovLogic(rules, encoder=encoder, size=6, slices=3))
    (world,) = facts.worlds()
    together = network.encoder(world)
    for name, declared in facts.declared.items():
        grid = np.meshgrid(*(world[type_name] for type_name in declared.types), indexing="ij")
        alone = network.encoder.score({name: tuple(ids.reshape(-1) for ids in grid)})[name]
        assert torch.allclose(alone.view_as(together[name]), together[name], atol=1e-5)


def test_what_sampled_training_refuses(tmp_path):
    kb = facts_of(0)
    with pytest.raises(DataError, match="a folder keeps the training of an encoder"):
        MarkovLogic(RULES).fit(kb, tmp_path)
    with pytest.raises(DataError, match="no rules to draw groundings of"):
        MarkovLogic(rw.RuleSet([], predicates=RULES.predicates), training="sampled").fit(kb)
    model = MarkovLogic(RULES, training="sampled", epochs=1, batch_size=10).fit(kb)
    with pytest.raises(DataError, match="leave them out before fit"):
        model.predict(["smokes"], opened="smokes")
    with pytest.raises(DataError, match="does without"):
        model.explain("smokes(ann)")
    closed = rw.parse_rules("1.0 friend(X, Y) => friend(Y, X).")
    with pytest.raises(DataError, match="leave none open"):
        MarkovLogic(closed, training="sampled", closed=["friend"]).fit(kb)
    with pytest.raises(DataError, match="no comparison but"):
        MarkovLogic(rw.parse_rules("1.0 friend(X, Y) & X < Y => friend(Y, X)."), training="sampled").fit(kb)
