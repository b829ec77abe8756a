from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import DATA, needs_data
from scipy import sparse

from rulewright import KnowledgeBase, apply, datasets, explain
from rulewright.engine.walks import WAYS, Evidence, Graph, HiddenEdges, RuleForm, RuleTable
from rulewright.errors import DataError, FileError, RulewrightError
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.learn.path_mixture.paths import count_constant_rules, count_paths
from rulewright.learn.path_mixture.questions import FactSampler
from rulewright.learn.path_mixture.target import (
    LOSSES,
    RankingExamples,
    build_examples,
    doubt_candidates,
    find_loss,
    find_slopes,
    fit_weights,
    learn_target,
)
from rulewright.logic import parse_rules
from rulewright.reason.ranking import RuleRanker


def uncles(families=30):
    """Uncles follow from parents and brothers; what the last family's uncle is must be inferred."""
    facts = []
    for n in range(families):
        facts += [(f"child{n}", "parent", f"father{n}"), (f"father{n}", "brother", f"uncle{n}")]
        facts += [(f"child{n}", "likes", f"child{(n * 7) % families}")]
        if n < families - 1:
            facts.append((f"child{n}", "uncle", f"uncle{n}"))
    return KnowledgeBase.from_triples(facts)


@pytest.mark.parametrize("ways", WAYS)
def test_a_composition_is_learned_and_read_back(ways):
    kb = uncles()
    mixture = PathMixture(targets=["uncle"], max_length=2, ways=ways).fit(kb)
    assert mixture.ranker_.answers("uncle", "child29", 1)[0][0] == "uncle29"
    assert mixture.ranker_.answers("uncle", "uncle29", 1, inverse=True)[0][0] == "child29"
    best = mixture.rules_.rules[0]
    assert str(best).startswith("0.") and "parent(X, V1), brother(V1, Y)" in str(best)
    again = RuleRanker.of(parse_rules(str(mixture.rules_)), kb, aggregation="weight")
    everyone = np.arange(kb.n_entities)
    for inverse in (False, True):
        expected = mixture.scores("uncle", everyone, inverse=inverse)
        np.testing.assert_allclose(again.scores("uncle", everyone, inverse=inverse), expected, atol=1e-9)


def test_a_relation_is_no_evidence_for_itself():
    random = np.random.default_rng(0)
    pairs = {(int(a), int(b)) for a, b in random.integers(0, 40, (60, 2))}
    kb = KnowledgeBase.from_triples([(f"a{a}", "r", f"b{b}") for a, b in sorted(pairs)])
    mixture = PathMixture(max_length=3, constants=0).fit(kb)
    for target in mixture.learned_.values():  # r · r⁻¹ · r would always fire if the fact itself were there
        row = [number for number, path in enumerate(target.table.paths) if len(path) == 3]
        used = np.isin(target.table.path_index, row)
        assert target.support[used].sum() < target.body[used].sum() / 2 or not used.any()


def test_given_paths_are_weighed_and_no_others(tmp_path):
    kb = uncles()
    parent, brother, likes, _ = (2 * kb.predicate_index(name) for name in ("parent", "brother", "likes", "uncle"))
    given = {"uncle": [(parent, brother), (likes,)]}
    mixture = PathMixture(targets=["uncle"], paths=given, constants=0, popularity=False, folder=tmp_path).fit(kb)
    assert mixture.ranker_.answers("uncle", "child29", 1)[0][0] == "uncle29"
    assert mixture.ranker_.answers("uncle", "uncle29", 1, inverse=True)[0][0] == "child29"
    used = {path for target in mixture.learned_.values() for path in target.table.paths}
    assert used == {(), (parent, brother), (likes,), (brother + 1, parent + 1), (likes + 1,)}
    with pytest.raises(FileError, match="other facts or parameters"):
        PathMixture(targets=["uncle"], paths={"uncle": []}, constants=0, folder=tmp_path).fit(kb)
    with pytest.raises(RulewrightError, match="unclee"):
        PathMixture(paths={"unclee": [(parent, brother)]}).fit(kb)
    silent = PathMixture(targets=["uncle"], paths={"uncle": [(brother, brother)]}, constants=0).fit(kb)
    assert (silent.scores("uncle", np.arange(kb.n_entities)) <= 0).all()  # nobody is their own uncle, that is all


def test_of_given_paths_the_best_are_weighed_and_those_of_one_relation():
    kb = uncles()
    parent, brother, likes, uncle = (2 * kb.predicate_index(name) for name in ("parent", "brother", "likes", "uncle"))
    given = {"uncle": [(parent, brother), (likes, uncle), (likes,), (parent, parent), (uncle, brother + 1, brother)]}
    for max_paths in (1, 9):
        mixture = PathMixture(targets=["uncle"], paths=given, constants=0, popularity=False, max_paths=max_paths)
        sampler = FactSampler(Graph(kb))
        hidden = HiddenEdges(uncle, *sampler.graph.edges(uncle))
        counted = count_paths(sampler.graph, hidden, given["uncle"])
        fit = [row for row in np.argsort(-counted.support * counted.confidence) if counted.support[row] >= 2]
        best = {given["uncle"][row] for row in fit[:max_paths]}
        assert (parent, brother) in best
        target = learn_target(mixture, sampler, uncle, None, given["uncle"])
        assert set(target.table.paths) == {(), (likes,), *best}


def test_it_goes_on_where_it_stopped(tmp_path):
    kb = uncles(10)
    first = PathMixture(folder=tmp_path, targets=["uncle"]).fit(kb)
    (tmp_path / "target_1.npz").unlink(missing_ok=True)
    second = PathMixture(folder=tmp_path, targets=["uncle"]).fit(kb)
    assert str(first.rules_) == str(second.rules_)
    with pytest.raises(FileError, match="other facts or parameters"):
        PathMixture(folder=tmp_path, targets=["uncle"], l2=3.0).fit(kb)


def test_directions_share_what_they_learned(tmp_path):
    kb = uncles(10)
    options = {"folder": tmp_path, "targets": ["uncle"], "constants": 0, "popularity": False}
    alone, shared = PathMixture(**options).fit(kb), PathMixture(**options, shared=0.5).fit(kb)
    everyone = np.arange(kb.n_entities)
    ahead, back = (alone.scores("uncle", everyone, inverse=inverse) for inverse in (False, True))
    # weights have three significant digits, before they are shared and after
    np.testing.assert_allclose(shared.scores("uncle", everyone), ahead + 0.5 * back.T, rtol=0.01, atol=0.01)
    np.testing.assert_allclose(
        shared.scores("uncle", everyone, inverse=True), back + 0.5 * ahead.T, rtol=0.01, atol=0.01
    )
    assert RuleRanker.of(shared.rules_, kb, aggregation="weight").answers("uncle", "child9", 1)[0][0] == "uncle9"
    with pytest.raises(DataError, match=r"shared must lie in \[0, 1\]"):
        PathMixture(shared=2.0)


def test_bad_input_is_refused():
    with pytest.raises(DataError, match="max_length must lie in 1 … 5, got 6"):
        PathMixture(max_length=6)
    with pytest.raises(DataError, match="ways must be 'once', 'counted' or 'telling'"):
        PathMixture(ways="often")
    with pytest.raises(DataError, match="loss must be 'softmax'"):
        PathMixture(loss="square")
    with pytest.raises(DataError, match="no paths to learn from"):
        PathMixture().fit(KnowledgeBase.from_facts([("tall", "ann")]))
    with pytest.raises(RulewrightError, match="unknown predicate 'nothing'"):
        PathMixture(targets=["nothing"]).fit(uncles(3))


def tiny(seed, questions=4, candidates=5, rules=3):
    random = np.random.default_rng(seed)
    table = sparse.csr_array((random.random((questions * candidates, rules)) < 0.4).astype(float))
    start = np.arange(questions + 1) * candidates
    positive = start[:-1] + random.integers(0, candidates, questions)
    stands_for = random.integers(1, 4, questions * candidates).astype(float)
    stands_for[positive] = 1.0
    silent, known = random.integers(0, 4, questions).astype(float), random.integers(1, 5, questions).astype(float)
    return RankingExamples(table, start, positive, silent, known, stands_for)


@given(st.integers(0, 200), st.sampled_from(list(LOSSES)))
@settings(max_examples=30, deadline=None)
def test_losses_are_those_of_plain_loops(seed, loss):
    each = tiny(seed)
    weights = np.random.default_rng(seed + 1).normal(size=3)
    scores = each.features.toarray() @ weights
    expected = 0.0
    for question in range(len(each.positive)):
        mine = scores[each.start[question] : each.start[question + 1]]
        own = scores[each.positive[question]]
        places = np.arange(each.start[question], each.start[question + 1])
        others = [
            score
            for place, score in zip(places, mine, strict=True)
            for _ in range(int(each.stands_for[place]))
            if place != each.positive[question]
        ]
        others += [0.0] * int(each.silent[question])
        if loss == "softmax":
            expected += np.log(np.exp(own) + np.exp(others).sum()) - own
        elif loss == "logistic":
            expected += np.mean([np.log1p(np.exp(score - own)) for score in others])
        else:
            expected += np.mean([max(0.0, 1 - own + score) for score in others])
    found, slopes = find_loss(loss, each, weights)
    assert found == pytest.approx(expected)
    if loss != "margin":
        for rule in range(3):
            nudged = weights.copy()
            nudged[rule] += 1e-6
            higher = find_loss(loss, each, nudged, with_slopes=False)[0]
            assert (higher - found) / 1e-6 == pytest.approx(slopes[rule], abs=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_stay_in_their_bounds_and_lower_the_loss(loss):
    each = tiny(3)
    zero = np.zeros(3)
    weights = fit_weights(each, zero, lower=zero, upper=np.array([np.inf, np.inf, 0.5]), loss=loss, l2=0.01).weights
    assert (weights >= 0).all() and weights[2] <= 0.5
    before, after = (find_loss(loss, each, w)[0] for w in (zero, weights))
    assert after <= before


graphs = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 4)), min_size=4, max_size=16)


@given(graphs)
@settings(max_examples=30, deadline=None)
def test_examples_are_built_on_the_graph_without_each_fact(facts):
    kb = KnowledgeBase.from_triples([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in sorted(facts)])
    graph = Graph(kb)
    before, after = graph.edges(0)
    paths = [(1,), (2,), (0, 1, 0), (2, 0), (0, 0)]
    paths = [path for path in paths if max(path) < 2 * graph.relations]
    table = RuleTable.of_paths(0, paths)
    none = count_constant_rules(graph, HiddenEdges(0, before, after), max_length=0)
    facts_asked, weights = (before, after), np.ones(len(paths))
    found = build_examples(Evidence(graph, table), none, facts_asked, facts_asked, weights, hide=True)
    name = next(iter(kb.predicates))
    for place, (h, t) in enumerate(zip(before, after, strict=True)):
        rest = kb.tables()["ee"]
        keep = ~((rest.predicate == 0) & (rest.columns[0] == h) & (rest.columns[1] == t))
        without = Graph(kb.with_facts({"ee": rest.keep_rows(keep)}))
        known = set(after[before == h].tolist()) - {int(t)}
        expected = {}
        for number, path in enumerate(paths):
            for y in without.walk(np.array([h]), path).indices.tolist():
                if y not in known:
                    expected.setdefault(y, set()).add(number)
        rows = range(found.start[place], found.start[place + 1])
        got = sorted(tuple(found.features[[row]].indices.tolist()) for row in rows)
        assert sorted(map(sorted, got)) == sorted(map(sorted, expected.values())), name
        own = found.positive[place]
        assert set(found.features[[own]].indices.tolist() if own >= 0 else ()) == expected.get(int(t), set())
        assert found.silent[place] == kb.n_entities - len(known) - len(expected)


@given(graphs, st.integers(1, 4), st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=5, max_size=5))
@settings(max_examples=60, deadline=None)
def test_the_best_candidates_by_first_weights_are_kept(facts, most, chosen):
    kb = KnowledgeBase.from_triples([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in sorted(facts)])
    graph = Graph(kb)
    before, after = graph.edges(0)
    paths = [path for path in [(1,), (2,), (0, 1, 0), (2, 0), (0, 0)] if max(path) < 2 * graph.relations]
    evidence, weights = Evidence(graph, RuleTable.of_paths(0, paths)), np.array(chosen[: len(paths)])
    none = count_constant_rules(graph, HiddenEdges(0, before, after), max_length=0)
    found = build_examples(evidence, none, (before, after), (before, after), weights, hide=True, max_candidates=most)
    scores = evidence.scores(before, weights, HiddenEdges(0, before, after))
    fires = np.zeros_like(scores, dtype=bool)
    row, candidate, _, _ = evidence.firings(before, HiddenEdges(0, before, after))
    fires[row, candidate] = True
    for place, (h, t) in enumerate(zip(before, after, strict=True)):
        others = set(after[before == h].tolist()) - {int(t)}
        high = sorted((s for y, s in enumerate(scores[place]) if s > 0 and y not in others), reverse=True)
        bound = high[most - 1] if len(high) >= most else 0.0
        kept = [
            y
            for y, s in enumerate(scores[place])
            if y not in others and ((s > 0 and s >= bound) or y == t) and fires[place, y]
        ]
        assert found.start[place + 1] - found.start[place] == len(kept)
        assert (found.positive[place] >= 0) == (int(t) in kept)
        spoken = {y for y in np.flatnonzero(fires[place]).tolist() if y not in others}
        assert found.silent[place] == kb.n_entities - len(others) - len(spoken)


@given(graphs, st.integers(1, 3), st.integers(0, 6), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_drawn_candidates_stand_for_all_that_are_left_out(facts, most, drawn, seed):
    kb = KnowledgeBase.from_triples([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in sorted(facts)])
    graph = Graph(kb)
    before, after = graph.edges(0)
    paths = [path for path in [(1,), (2,), (0, 1, 0), (2, 0), (0, 0)] if max(path) < 2 * graph.relations]
    evidence, weights = Evidence(graph, RuleTable.of_paths(0, paths)), np.linspace(-0.5, 1, len(paths))
    none = count_constant_rules(graph, HiddenEdges(0, before, after), max_length=0)

    def build(**options):
        return build_examples(evidence, none, (before, after), (before, after), weights, hide=True, **options)

    all_of_them, best = build(), build(max_candidates=most)
    found = build(max_candidates=most, max_drawn=drawn, seed=seed)
    np.testing.assert_array_equal(found.silent, all_of_them.silent)
    for query in range(len(before)):
        rows = slice(found.start[query], found.start[query + 1])
        n_best = best.start[query + 1] - best.start[query]
        n_left = all_of_them.start[query + 1] - all_of_them.start[query] - n_best
        stands_for = np.sort(found.stands_for[rows])
        if drawn >= n_left:
            assert stands_for.tolist() == [1.0] * (n_best + n_left)
        else:
            assert stands_for[:n_best].tolist() == [1.0] * n_best
            assert stands_for[n_best:].tolist() == pytest.approx([n_left / max(drawn, 1)] * (len(stands_for) - n_best))


@given(graphs, st.sampled_from(WAYS))
@settings(max_examples=40, deadline=None)
def test_rules_about_one_end_count_its_edges_without_the_hidden_one(facts, ways):
    kb = KnowledgeBase.from_triples([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in sorted(facts)])
    graph = Graph(kb)
    before, after = graph.edges(0)
    walked = RuleTable.of_paths(0, [(1,), (0, 1, 0)], ways)
    n_steps = 2 * graph.relations
    table = walked
    for step in range(n_steps):
        table = table.join(RuleTable.of_answer_edges(0, step))
    asked = RuleTable(0, table.paths, *(np.array([v]) for v in (table.path_index[-1], RuleForm.ASKED_EDGES, -1, -1)))
    table = table.join(asked)
    row, candidate, rule, value = Evidence(graph, table).firings(before, HiddenEdges(0, before, after))
    found = {
        (r, c, n): v
        for r, c, n, v in zip(row.tolist(), candidate.tolist(), rule.tolist(), value.tolist(), strict=True)
        if n >= 2
    }
    expected = {}
    for place, (h, t) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        rest = kb.tables()["ee"]
        keep = ~((rest.predicate == 0) & (rest.columns[0] == h) & (rest.columns[1] == t))
        without = Graph(kb.with_facts({"ee": rest.keep_rows(keep)}))
        for y in {*without.walk(np.array([h]), (1,)).indices, *without.walk(np.array([h]), (0, 1, 0)).indices}:
            for step in range(n_steps):
                if edges := int(without.degrees(step)[y]):
                    expected[place, int(y), 2 + step] = np.log2(1 + edges)
            if edges := int(without.degrees(n_steps - 1)[h]):
                expected[place, int(y), 2 + n_steps] = np.log2(1 + edges)
    assert found == pytest.approx(expected)


def test_what_was_an_answer_before_may_speak_against_an_answer():
    random = np.random.default_rng(0)
    partner = random.permutation(60)  # p leads to one's own partner and to that of another, who has one already
    facts = [(f"a{i}", "p", f"b{partner[j]}") for i in range(60) for j in (i, (i + 1) % 60)]
    known = [(f"a{i}", "r", f"b{partner[i]}") for i in range(60) if i % 3]
    hidden = KnowledgeBase.from_triples([(f"a{i}", "r", f"b{partner[i]}") for i in range(60) if i % 3 == 0])
    kb = KnowledgeBase.from_triples(facts + known)
    kb = kb.with_splits({"test": kb.add(hidden).remove(kb)})
    plain, weighing = (
        PathMixture(targets=["r"], constants=0, max_length=1, popularity=popularity).fit(kb)
        for popularity in (False, True)
    )
    scores = [evaluate_ranking(mixture, kb, "test").mrr for mixture in (plain, weighing)]
    assert scores[1] > scores[0] + 0.1
    (against,) = [str(formula) for formula in weighing.rules_.formulas if "r(Z, Y) => !r(X, Y)" in str(formula)]
    again = parse_rules(str(weighing.rules_))
    everyone = np.arange(kb.n_entities)
    for inverse in (False, True):
        expected = weighing.scores("r", everyone, inverse=inverse)
        found = RuleRanker.of(again, kb).scores("r", everyone, inverse=inverse)
        np.testing.assert_allclose(found, expected, atol=1e-9)
    proof = explain(again, kb, f"r(a0, b{partner[1]})", k=None)
    assert against and any("r(Z, Y) => !r(X, Y)" in str(part.source) for part in proof.proofs)
    given = {str(fact) for fact in apply(again, kb, aggregation="weight")}
    assert f"r(a0, b{partner[0]})" in given


@given(graphs, st.integers(0, 1000), st.sampled_from(WAYS))
@settings(max_examples=60, deadline=None)
def test_rules_of_two_paths_speak_where_both_join(facts, seed, ways):
    kb = KnowledgeBase.from_triples([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in sorted(facts)])
    graph, random = Graph(kb), np.random.default_rng(seed)
    before, after = graph.edges(0)
    hidden = HiddenEdges(0, before, after)
    draw = lambda: tuple(random.integers(0, 2 * graph.relations, random.integers(1, 4)).tolist())  # noqa: E731
    single = list(dict.fromkeys([(1,), draw()]))
    pairs = [pair for pair in [(draw(), draw()) for _ in range(6)] if pair[0] != pair[1]]
    table = RuleTable.of_paths(0, single, ways).join(RuleTable.of_both(0, pairs))
    row, candidate, rule, value = Evidence(graph, table).firings(before, hidden)
    speaks = rule >= len(single)
    assert (value[speaks] == 1).all()
    found = sorted(zip(row[speaks].tolist(), candidate[speaks].tolist(), rule[speaks].tolist(), strict=True))
    joined = {path: graph.walk(before, path, hidden).toarray() > 0 for pair in pairs for path in pair}
    expected = [
        (int(query), int(end), len(single) + position)
        for position, (path, second) in enumerate(pairs)
        for query, end in zip(*np.nonzero(joined[path] & joined[second]), strict=True)
    ]
    assert found == sorted(expected)
    chosen = np.arange(len(table))[::-1]
    again = Evidence(graph, table.select(chosen)).firings(before, hidden)
    assert len(again[0]) == len(row)


def either_but_not_both(count=400, seed=0):
    """r holds where p or q does, not where both do, and some of it is asked for."""
    random = np.random.default_rng(seed)
    facts, known, hidden = [], [], []
    for i in range(count):
        three = random.permutation(count)[:3]
        facts += [(f"a{i}", "p", f"b{three[0]}"), (f"a{i}", "q", f"b{three[0]}")]
        facts += [(f"a{i}", "p" if random.random() < 0.5 else "q", f"b{three[1]}"), (f"a{i}", "s", f"b{three[2]}")]
        (known if i % 4 else hidden).append((f"a{i}", "r", f"b{three[1]}"))
    kb = KnowledgeBase.from_triples(facts + known)
    valid, test = (KnowledgeBase.from_triples(hidden[part::2]) for part in (0, 1))
    return kb.with_splits({name: kb.add(held).remove(kb) for name, held in (("valid", valid), ("test", test))})


def test_two_paths_together_may_say_less_than_one():
    kb = either_but_not_both()
    options = {"targets": ["r"], "constants": 0, "max_length": 1, "popularity": False}
    apart, together = (PathMixture(conjunctions=count, **options).fit(kb) for count in (0, 50))
    scores = [evaluate_ranking(mixture, kb, "test").mrr for mixture in (apart, together)]
    assert scores[0] < 0.8 < 0.9 < scores[1]
    (rule,) = [line for line in str(together.rules_).splitlines() if "p(X, Y) & q(X, Y) => !r(X, Y)" in line]
    again = parse_rules(str(together.rules_))
    everyone = np.arange(kb.n_entities)
    for inverse in (False, True):
        expected = together.scores("r", everyone, inverse=inverse)
        np.testing.assert_allclose(RuleRanker.of(again, kb).scores("r", everyone, inverse=inverse), expected, atol=1e-9)
    head, tail = next(iter(set(zip(*kb.columns("p"), strict=True)) & set(zip(*kb.columns("q"), strict=True))))
    labels = kb.domains["entity"].labels
    proof = explain(again, kb, f"r({labels[head]}, {labels[tail]})", k=None)
    assert rule and any("q(X, Y) => !r(X, Y)" in str(part.source) for part in proof.proofs)


def test_two_chains_between_the_same_ends_are_walked_alike_whatever_the_order():
    kb = either_but_not_both(12)
    texts = [
        "0.5 :: r(X, Y) :- p(X, V), p(Z, V), q(Z, Y), p(X, Y).",
        "0.5 :: r(X, Y) :- p(X, Y), q(Z, Y), p(X, V), p(Z, V).",
    ]
    everyone = np.arange(kb.n_entities)
    walked = [RuleRanker.of(parse_rules(text), kb).scores("r", everyone) for text in texts]
    joined = apply(parse_rules(texts[0]), kb, max_facts=10_000)
    np.testing.assert_array_equal(*walked)
    graph, (p, q) = Graph(kb), (2 * kb.predicate_index(name) for name in "pq")
    ends = graph.walk(everyone, (p, p + 1, q)).toarray() * graph.walk(everyone, (p,)).toarray() > 0
    np.testing.assert_array_equal(walked[0] > 0, ends)
    assert 0 < len(joined) <= ends.sum()


def test_rules_that_name_entities_earn_their_place():
    random = np.random.default_rng(0)
    facts = [(f"a{i}", "q", f"d{i % 4}") for i in range(80)] + [(f"a{i}", "r", f"c{i % 4}") for i in range(80)]
    facts += [(f"a{i}", "p", f"b{i}") for i in range(80)] + [(f"a{i}", "s", f"b{i}") for i in range(80)]
    facts += [(f"b{i}", "t", f"d{random.integers(4)}") for i in range(80)]
    kb = KnowledgeBase.from_triples(facts)
    options = {"max_length": 1, "popularity": False, "missing": 0.0}
    given, none = (PathMixture(constants=constants, **options).fit(kb) for constants in (1, 0))
    everyone, without = np.arange(kb.n_entities), []
    for step, target in given.learned_.items():
        if not (target.table.constant >= 0).any():
            without.append(step)
            name, inverse = list(kb.predicates)[step // 2], bool(step % 2)
            expected = none.scores(name, everyone, inverse=inverse)
            np.testing.assert_allclose(given.scores(name, everyone, inverse=inverse), expected, atol=0.02)
    assert without and 2 * kb.predicate_index("r") not in without
    assert given.ranker_.answers("r", "a5", 1, known=True)[0][0] == "c1"


def test_a_pruned_mixture_has_fewer_rules_and_answers_as_well():
    kb = either_but_not_both()
    options = {"targets": ["r"], "max_length": 2}
    whole, pruned = (PathMixture(prune=loss, **options).fit(kb) for loss in (None, 0.01))
    counts = [len(mixture.rules_) for mixture in (whole, pruned)]
    assert counts[1] < counts[0]
    scores = [evaluate_ranking(mixture, kb, "valid").mrr for mixture in (whole, pruned)]
    assert scores[1] >= scores[0] - 0.01 - 1e-9
    with pytest.raises(DataError, match="split valid, and there is none"):
        PathMixture(prune=0.01).fit(uncles(5))


@pytest.mark.parametrize("threads", [2, 3])
def test_ranks_are_the_same_in_any_number_of_threads(threads):
    kb = either_but_not_both(80)
    mixture = PathMixture(max_length=2).fit(kb)
    several = RuleRanker(kb, mixture.ranker_.tables, threads=threads)
    plain = evaluate_ranking(mixture.ranker_, kb, "test")
    assert evaluate_ranking(several, kb, "test").figures() == plain.figures()

    class ByScores:
        scores = staticmethod(mixture.scores)

    assert evaluate_ranking(ByScores(), kb, "test").figures() == pytest.approx(plain.figures())


@given(st.integers(0, 200))
@settings(max_examples=30, deadline=None)
def test_examples_of_some_queries_and_with_pairs_are_those_of_plain_loops(seed):
    random = np.random.default_rng(seed)
    each = tiny(seed, questions=5)
    queries = np.flatnonzero(random.random(5) < 0.6)
    some = each.select(queries)
    weights = random.normal(size=3)
    parts = [find_loss("softmax", each.select(np.array([query])), weights)[0] for query in queries]
    assert find_loss("softmax", some, weights)[0] == pytest.approx(sum(parts))
    pairs = np.array([[0, 2], [1, 2]])
    wide, dense = each.join_columns(pairs, 4.0).features.toarray(), each.features.toarray()
    np.testing.assert_array_equal(wide[:, :3], dense)
    np.testing.assert_allclose(wide[:, 3:] * 4, np.stack([(dense[:, a] > 0) & (dense[:, b] > 0) for a, b in pairs], 1))
    slopes = find_slopes(each, weights)
    np.testing.assert_allclose(each.features.T @ slopes, find_loss("softmax", each, weights)[1], atol=1e-9)


@given(st.integers(0, 200), st.sampled_from([0.0, 0.2, 0.7]))
@settings(max_examples=40, deadline=None)
def test_what_looks_right_counts_less_as_it_may_be_missing(seed, missing):
    each, weights = tiny(seed), np.random.default_rng(seed).normal(size=3)
    doubted = doubt_candidates(each, weights, missing)
    scores = each.features @ weights
    for query, positive in enumerate(each.positive):
        rows = [row for row in range(each.start[query], each.start[query + 1]) if row != positive]
        mass = sum(each.stands_for[row] * np.exp(scores[row]) for row in rows) + each.silent[query]
        for row in rows:
            chance = min(0.95, each.known[query] * missing / (1 - missing) * np.exp(scores[row]) / mass)
            assert doubted.stands_for[row] == pytest.approx(each.stands_for[row] * (1 - chance))
        assert doubted.stands_for[positive] == each.stands_for[positive]


def test_without_valid_every_fifth_query_says_when_to_stop(monkeypatch):
    random = np.random.default_rng(0)
    facts = {(f"a{a}", f"r{r}", f"b{b}") for r, a, b in random.integers(0, [4, 30, 30], (900, 3)).tolist()}
    kb = KnowledgeBase.from_triples(sorted(facts))  # nothing follows from anything
    options = {"targets": ["r0"], "constants": 0, "l2": 0.0, "conjunctions": 0, "max_length": 2}
    stopped = PathMixture(**options).fit(kb)
    monkeypatch.setattr("rulewright.learn.path_mixture.target._LEAST_HELD", 10_000)
    heavy = PathMixture(**options).fit(kb)
    total = [sum(np.abs(one.weights).sum() for one in mixture.learned_.values()) for mixture in (stopped, heavy)]
    assert total[0] < total[1] / 3


@pytest.mark.slow
@needs_data
def test_umls_is_completed(monkeypatch):
    monkeypatch.setenv("RULEWRIGHT_DATA", str(DATA))
    kb = datasets.load("umls")
    targets = ["affects", "treats"]
    mixture = PathMixture(targets=targets, max_length=2, max_paths=100, constants=0, prior=0.05).fit(kb)
    assert evaluate_ranking(mixture, kb, "test", relations=targets).mrr > 0.8
