"""Other systems on the four problems: LTN, pylon, ProbLog, DeepProbLog and PSL, each as its own documentation does it.

A function is the part that a user writes, and its lines are counted; what a system needs besides is imported inside.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from peers.problems import EXCLUSIVE, LEGAL, LENGTH, NODES, PARENT, TAGS, TYPES, Split, select_pairs
from peers.training import Part

# LTN: fuzzy truth values, axioms as a loss. Networks give truth values, the axioms are on top.


def ltn_hierarchy() -> Part:
    """All samples, all labels with their parents, and all pairs that exclude each other."""
    import ltn

    implies = ltn.Connective(ltn.fuzzy_ops.ImpliesReichenbach())
    conjoin = ltn.Connective(ltn.fuzzy_ops.AndProd())
    negate = ltn.Connective(ltn.fuzzy_ops.NotStandard())
    for_all = ltn.Quantifier(ltn.fuzzy_ops.AggregPMeanError(p=2), quantifier="f")
    satisfied = ltn.fuzzy_ops.SatAgg()
    label = ltn.Predicate(func=lambda truths, chosen: (truths * chosen).sum(-1))
    one_hot = torch.eye(len(PARENT))
    child, parent = (one_hot[side] for side in PARENT.nonzero(as_tuple=True))
    left, right = (one_hot[side] for side in EXCLUSIVE.triu().nonzero(as_tuple=True))

    def penalty(logits: Tensor, split: Split) -> Tensor:
        x = ltn.Variable("x", logits.sigmoid())
        c, p = ltn.diag(ltn.Variable("c", child), ltn.Variable("p", parent))
        upward = for_all([x, c, p], implies(label(x, c), label(x, p)))
        a, b = ltn.diag(ltn.Variable("a", left), ltn.Variable("b", right))
        apart = for_all([x, a, b], negate(conjoin(label(x, a), label(x, b))))
        return 1 - satisfied(upward, apart)

    return penalty


def ltn_bio() -> Part:
    """An I- tag follows a B- or I- tag of its type, and starts no sentence."""
    import ltn

    implies = ltn.Connective(ltn.fuzzy_ops.ImpliesReichenbach())
    disjoin = ltn.Connective(ltn.fuzzy_ops.OrProbSum())
    negate = ltn.Connective(ltn.fuzzy_ops.NotStandard())
    for_all = ltn.Quantifier(ltn.fuzzy_ops.AggregPMeanError(p=2), quantifier="f")
    satisfied = ltn.fuzzy_ops.SatAgg()
    tag = ltn.Predicate(func=lambda truths, chosen: (truths * chosen).sum(-1))
    one_hot = torch.eye(len(TAGS))
    begin, inside = one_hot[1::2], one_hot[2::2]

    def penalty(logits: Tensor, split: Split) -> Tensor:
        truths, real = logits.softmax(-1), split.mask[:, 1:]
        t, u = ltn.diag(ltn.Variable("t", truths[:, :-1][real]), ltn.Variable("u", truths[:, 1:][real]))
        b, i = ltn.diag(ltn.Variable("b", begin), ltn.Variable("i", inside))
        follows = for_all([t, u, b, i], implies(tag(u, i), disjoin(tag(t, b), tag(t, i))))
        first, k = ltn.Variable("first", truths[:, 0]), ltn.Variable("k", inside)
        return 1 - satisfied(follows, for_all([first, k], negate(tag(first, k))))

    return penalty


def ltn_graphs() -> Part:
    """Same is transitive, over all triples of a graph."""
    import ltn

    implies = ltn.Connective(ltn.fuzzy_ops.ImpliesReichenbach())
    conjoin = ltn.Connective(ltn.fuzzy_ops.AndProd())
    for_all = ltn.Quantifier(ltn.fuzzy_ops.AggregPMeanError(p=2), quantifier="f")
    same = ltn.Predicate(func=lambda truths: truths[..., 0])
    nodes = torch.arange(NODES)
    x, y, z = torch.cartesian_prod(nodes, nodes, nodes).T
    distinct = (x != y) & (y != z) & (x != z)
    x, y, z = x[distinct], y[distinct], z[distinct]

    def penalty(logits: Tensor, split: Split) -> Tensor:
        truths, mask = logits.sigmoid(), split.mask
        real = mask[:, x] & mask[:, y] & mask[:, z]
        sides = [truths[:, one, other][real].unsqueeze(-1) for one, other in ((x, y), (y, z), (x, z))]
        a, b, c = ltn.diag(*(ltn.Variable(name, side) for name, side in zip("abc", sides, strict=True)))
        return 1 - for_all([a, b, c], implies(conjoin(same(a), same(b)), same(c))).value

    return penalty


def ltn_digits() -> Part:
    """For all pairs there are two digits that add up to what is known of them; "there is" hardens with the epochs."""
    import ltn

    conjoin = ltn.Connective(ltn.fuzzy_ops.AndProd())
    for_all = ltn.Quantifier(ltn.fuzzy_ops.AggregPMeanError(p=2), quantifier="f")
    exists = ltn.Quantifier(ltn.fuzzy_ops.AggregPMean(), quantifier="e")
    digit = ltn.Predicate(func=lambda truths, number: torch.gather(truths, -1, number.long()).squeeze(-1))
    numbers = torch.arange(10).unsqueeze(-1)
    powers = (power for power, epochs in ((1, 4), (2, 4), (4, 4), (6, 8)) for _ in range(epochs * 15))

    def objective(logits: Tensor, split: Split) -> Tensor:
        truths = logits.softmax(-1)
        left, right = ltn.Variable("x", truths[:, 0]), ltn.Variable("y", truths[:, 1])
        x, y, total = ltn.diag(left, right, ltn.Variable("total", split.targets.unsqueeze(-1)))
        d, e = ltn.Variable("d", numbers), ltn.Variable("e", numbers)
        some = exists(
            [d, e],
            conjoin(digit(x, d), digit(y, e)),
            cond_vars=[d, e, total],
            cond_fn=lambda d, e, total: (d.value + e.value == total.value)[..., 0],
            p=next(powers),
        )
        return 1 - for_all([x, y, total], some).value

    return objective


# pylon: a constraint is a Python function of decoded labels; here its semantic loss, all decodings of a grounding.


def pylon_hierarchy() -> Part:
    """Each label with its parent, and each pair that excludes each other."""
    from pylon.constraint import constraint

    upward = constraint(lambda child, parent: (child <= parent)[:, 0])
    apart = constraint(lambda one, other: (one + other < 2)[:, 0])
    (child, parent), (left, right) = (pairs.nonzero(as_tuple=True) for pairs in (PARENT, EXCLUSIVE.triu()))

    def penalty(logits: Tensor, split: Split) -> Tensor:
        scores = torch.stack([torch.zeros_like(logits), logits], -1)
        sides = [scores[:, labels].reshape(-1, 1, 2) for labels in (child, parent, left, right)]
        broken = upward(sides[0], sides[1]) + apart(sides[2], sides[3])
        return broken / (len(sides[0]) + len(sides[2]))

    return penalty


def pylon_bio() -> Part:
    """Each tag with the next one, and an O before the first."""
    from pylon.constraint import constraint

    legal = constraint(lambda before, after: LEGAL[before, after][:, 0])
    outside = torch.full((len(TAGS),), -20.0).index_fill(0, torch.tensor(0), 20.0)

    def penalty(logits: Tensor, split: Split) -> Tensor:
        scores = torch.cat([outside.expand(len(logits), 1, -1), logits], 1)
        before, after = scores[:, :-1][split.mask], scores[:, 1:][split.mask]
        return legal(before[:, None], after[:, None]) / len(before)

    return penalty


def pylon_graphs() -> Part:
    """All triples of a graph."""
    from pylon.constraint import constraint

    transitive = constraint(lambda one, other, third: (one * other <= third)[:, 0])
    nodes = torch.arange(NODES)
    x, y, z = torch.cartesian_prod(nodes, nodes, nodes).T
    distinct = (x != y) & (y != z) & (x != z)
    x, y, z = x[distinct], y[distinct], z[distinct]

    def penalty(logits: Tensor, split: Split) -> Tensor:
        scores, mask = torch.stack([torch.zeros_like(logits), logits], -1), split.mask
        real = mask[:, x] & mask[:, y] & mask[:, z]
        sides = [scores[:, one, other][real].unsqueeze(1) for one, other in ((x, y), (y, z), (x, z))]
        return transitive(*sides) / len(sides[0])

    return penalty


def pylon_digits() -> Part:
    """The digits of a pair add up to its sum."""
    from pylon.constraint import constraint

    def objective(logits: Tensor, split: Split) -> Tensor:
        adds_up = constraint(lambda left, right: (left + right)[:, 0] == split.targets)
        return adds_up(logits[:, :1], logits[:, 1:]) / len(split)

    return objective


# ProbLog: probabilistic facts from the network, the rules as evidence, exact marginals at the end.


def compile_problog(program: str) -> Any:
    from problog import get_evaluatable
    from problog.program import PrologString

    return get_evaluatable().create_from(PrologString(program))


def problog_hierarchy() -> Part:
    """One circuit for all samples, as the rules are the same; the labels that are more likely than not."""
    from problog.logic import Constant, Term

    lines = [f"0.5::label({label}). query(label({label}))." for label in range(len(PARENT))]
    lines += [f"bad :- label({c}), \\+label({p})." for c, p in PARENT.nonzero().tolist()]
    lines += [f"bad :- label({c}), label({d})." for c, d in EXCLUSIVE.triu().nonzero().tolist()]
    circuit = compile_problog("\n".join([*lines, "evidence(bad, false)."]))

    def decode(logits: Tensor, split: Split) -> Tensor:
        labels = torch.zeros_like(logits, dtype=torch.bool)
        for sample, truths in enumerate(logits.double().sigmoid().clamp(1e-6, 1 - 1e-6).tolist()):
            weights = {Term("label", Constant(place)): truth for place, truth in enumerate(truths)}
            for term, marginal in circuit.evaluate(weights=weights).items():
                labels[sample, int(term.args[0])] = marginal > 0.5
        return labels

    return decode


def problog_bio() -> Part:
    """One circuit for each length of a sentence; the likeliest tag of each token."""
    from problog.logic import Constant, Term

    circuits = {}
    for length in range(1, LENGTH + 1):
        lines = []
        for t in range(length):
            lines.append("; ".join(f"{1 / len(TAGS)}::tag({t},{k})" for k in range(len(TAGS))) + ".")
            lines += [f"query(tag({t},{k}))." for k in range(len(TAGS))]
        for before, after in (~LEGAL).nonzero().tolist():
            lines += [f"bad :- tag({t},{before}), tag({t + 1},{after})." for t in range(length - 1)]
        lines += [f"bad :- tag(0,{2 + 2 * place})." for place in range(len(TYPES))]
        circuits[length] = "\n".join([*lines, "evidence(bad, false)."])

    def decode(logits: Tensor, split: Split) -> Tensor:
        marginals = torch.zeros_like(logits)
        for sample, (truths, mask) in enumerate(zip(logits.double().softmax(-1), split.mask, strict=True)):
            length = int(mask.sum())
            if isinstance(circuits[length], str):
                circuits[length] = compile_problog(circuits[length])
            rows = enumerate((0.999 * truths[:length] + 1e-6).tolist())
            weights = {Term("tag", Constant(t), Constant(k)): p for t, row in rows for k, p in enumerate(row)}
            for term, marginal in circuits[length].evaluate(weights=weights).items():
                marginals[sample, int(term.args[0]), int(term.args[1])] = marginal
        return marginals.argmax(-1)

    return decode


def problog_graphs() -> Part:
    """One circuit for each size of a graph; a pair has one fact for both directions."""
    from problog.logic import Constant, Term

    circuits: dict[int, Any] = {}

    def write_pair(x: int, y: int) -> str:
        return f"same({min(x, y)},{max(x, y)})"

    def compile_size(size: int) -> Any:
        lines = [f"0.5::same({x},{y}). query(same({x},{y}))." for y in range(size) for x in range(y)]
        for x, y, z in itertools.permutations(range(size), 3):
            if x < z:
                lines.append(f"bad :- {write_pair(x, y)}, {write_pair(y, z)}, \\+{write_pair(x, z)}.")
        return compile_problog("\n".join([*lines, "evidence(bad, false)."]))

    def decode(logits: Tensor, split: Split) -> Tensor:
        labels = torch.zeros_like(logits, dtype=torch.bool)
        truths = logits.double().sigmoid().clamp(1e-6, 1 - 1e-6).tolist()
        for graph, size in enumerate(split.mask.sum(-1).tolist()):
            if size not in circuits:
                circuits[size] = compile_size(size)
            pairs = [(x, y) for y in range(size) for x in range(y)]
            weights = {Term("same", Constant(x), Constant(y)): truths[graph][x][y] for x, y in pairs}
            for term, marginal in circuits[size].evaluate(weights=weights).items():
                x, y = (int(argument) for argument in term.args)
                labels[graph, x, y] = labels[graph, y, x] = marginal > 0.5
        return labels

    return decode


# DeepProbLog: ProbLog with the network inside, trained through the circuit of each query.


def deepproblog_digits() -> Part:
    """The addition of its documentation: a pair's sum is a query."""
    from deepproblog.engines import ExactEngine
    from deepproblog.model import Model
    from deepproblog.network import Network
    from deepproblog.query import Query
    from problog.logic import Constant, Term

    program = """
        nn(digit_net, [X], Y, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]) :: digit(X, Y).
        addition(X, Y, Z) :- digit(X, A), digit(Y, B), Z is A + B.
    """
    digit = Network(nn.Identity(), "digit_net", batching=True)
    model = Model(program, [digit], load=False)
    model.set_engine(ExactEngine(model), cache=True)
    x, y = Term("x"), Term("y")

    def objective(logits: Tensor, split: Split) -> Tensor:
        truths = logits.softmax(-1)
        model.add_tensor_source("left", {(row,): pair[0] for row, pair in enumerate(truths)})
        model.add_tensor_source("right", {(row,): pair[1] for row, pair in enumerate(truths)})
        queries = []
        for row, total in enumerate(split.targets.tolist()):
            images = {x: Term("tensor", Term("left", Constant(row))), y: Term("tensor", Term("right", Constant(row)))}
            queries.append(Query(Term("addition", x, y, Constant(total)), images))
        answers = [next(iter(answer.result.values())) for answer in model.solve(queries)]
        return -torch.stack(answers).log().mean()

    return objective


# PSL: hinge-loss Markov random fields; the network's truth values are observed, and the rules are hard constraints.


def psl_hierarchy() -> Part:
    """All samples in one model."""
    from pslpython.model import Model
    from pslpython.predicate import Predicate
    from pslpython.rule import Rule

    def decode(logits: Tensor, split: Split) -> Tensor:
        model = Model("hierarchy")
        score, label, parent, apart = (Predicate(name, size=2) for name in ("score", "label", "parent", "apart"))
        samples, classes = range(len(logits)), range(len(PARENT))
        truths = logits.sigmoid().tolist()
        score.add_observed_data([[x, c, truths[x][c]] for x in samples for c in classes])
        label.add_target_data([[x, c] for x in samples for c in classes])
        parent.add_observed_data(PARENT.nonzero().tolist())
        apart.add_observed_data(EXCLUSIVE.triu().nonzero().tolist())
        for predicate in (score, label, parent, apart):
            model.add_predicate(predicate)
        model.add_rule(Rule("1.0: score(X, C) -> label(X, C) ^2"))
        model.add_rule(Rule("1.0: label(X, C) -> score(X, C) ^2"))
        model.add_rule(Rule("label(X, C) & parent(C, P) -> label(X, P) ."))
        model.add_rule(Rule("label(X, C) & apart(C, D) -> !label(X, D) ."))
        found = model.infer(psl_options=PSL_OPTIONS)[label]
        labels = torch.zeros_like(logits, dtype=torch.bool)
        labels[found[0].astype(int).tolist(), found[1].astype(int).tolist()] = torch.tensor(found["truth"].values > 0.5)
        return labels

    return decode


def psl_bio() -> Part:
    """All sentences in one model; the tags of a token add up to 1."""
    from pslpython.model import Model
    from pslpython.predicate import Predicate
    from pslpython.rule import Rule

    def decode(logits: Tensor, split: Split) -> Tensor:
        model = Model("bio")
        score, tag, after, illegal = (Predicate(name, size=2) for name in ("score", "tag", "after", "illegal"))
        first = Predicate("first", size=1)
        truths = logits.softmax(-1).flatten(0, 1).tolist()
        tokens = split.mask.flatten().nonzero().flatten().tolist()
        score.add_observed_data([[t, k, truths[t][k]] for t in tokens for k in range(len(TAGS))])
        tag.add_target_data([[t, k] for t in tokens for k in range(len(TAGS))])
        after.add_observed_data([[t - 1, t] for t in tokens if t % LENGTH])
        illegal.add_observed_data((~LEGAL).nonzero().tolist())
        first.add_observed_data([[t] for t in tokens if t % LENGTH == 0])
        for predicate in (score, tag, after, illegal, first):
            model.add_predicate(predicate)
        model.add_rule(Rule("1.0: score(T, K) -> tag(T, K) ^2"))
        model.add_rule(Rule("1.0: tag(T, K) -> score(T, K) ^2"))
        model.add_rule(Rule("tag(T, +K) = 1 ."))
        model.add_rule(Rule("tag(T, K) & after(T, U) & illegal(K, L) -> !tag(U, L) ."))
        model.add_rule(Rule("first(T) & illegal('0', L) -> !tag(T, L) ."))
        found = model.infer(psl_options=PSL_OPTIONS)[tag]
        values = torch.zeros_like(logits).flatten(0, 1)
        rows, columns = found[0].astype(int).tolist(), found[1].astype(int).tolist()
        values[rows, columns] = torch.tensor(found["truth"].values, dtype=values.dtype)
        return values.reshape(logits.shape).argmax(-1)

    return decode


def psl_graphs() -> Part:
    """All graphs in one model; pairs of one graph alone are targets."""
    from pslpython.model import Model
    from pslpython.predicate import Predicate
    from pslpython.rule import Rule

    def decode(logits: Tensor, split: Split) -> Tensor:
        model = Model("graphs")
        score, same = Predicate("score", size=3), Predicate("same", size=3)
        pairs = select_pairs(split)
        pairs = (pairs | pairs.mT).nonzero().tolist()
        truths = logits.sigmoid().tolist()
        score.add_observed_data([[g, x, y, truths[g][x][y]] for g, x, y in pairs])
        same.add_target_data(pairs)
        model.add_predicate(score)
        model.add_predicate(same)
        model.add_rule(Rule("1.0: score(G, X, Y) -> same(G, X, Y) ^2"))
        model.add_rule(Rule("1.0: same(G, X, Y) -> score(G, X, Y) ^2"))
        model.add_rule(Rule("same(G, X, Y) & same(G, Y, Z) & (X != Z) -> same(G, X, Z) ."))
        found = model.infer(psl_options=PSL_OPTIONS)[same]
        labels = torch.zeros_like(logits, dtype=torch.bool)
        graphs, x, y = (found[place].astype(int).tolist() for place in range(3))
        labels[graphs, x, y] = torch.tensor(found["truth"].values > 0.5)
        return labels

    return decode


PSL_OPTIONS = {"runtime.log.level": "ERROR"}
