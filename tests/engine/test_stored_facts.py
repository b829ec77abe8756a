"""Facts that stay in DuckDB are those that ``read_facts`` gives, and what is done with them is the same."""

from __future__ import annotations

import gzip
import random
from contextlib import suppress
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reason.programs import NAMES, recursive_rules

import rulewright as rw
from rulewright.engine import Engine, SQLEngine, StoredFacts, stored_facts
from rulewright.errors import DataError, FileError, ParseError, RulewrightError, TimeLimitError, UnknownNameError
from rulewright.logic import RuleSet, parse_rules
from rulewright.reason.apply import ForwardChaining
from rulewright.reason.stored_inferred import StoredInferred

Triple = tuple[str, str, str]
SEEDS = st.integers(0, 2**32)
ODD_LABELS = [
    "it's",
    'say "so"',
    "back\\slash",
    "\\",
    "ünïcödé",
    "日本",
    "e\u0301",
    " spaced ",
    "a,b;c",
    "%_%",
    "?x",
    "#no",
]


def mine(kb: rw.KnowledgeBase) -> str:
    return str(rw.RuleMiner(max_length=2, constants=False, unary=False, thresholds=False).fit(kb).rules_)


def make_triples(seed: int = 0, count: int = 300) -> list[Triple]:
    """Return facts of which some follow from others."""
    chance = random.Random(seed)
    facts = [(f"e{chance.randrange(40)}", f"r{chance.randrange(4)}", f"e{chance.randrange(40)}") for _ in range(count)]
    return [*facts, *((tail, "back", head) for head, relation, tail in facts if relation == "r1")]


def write_tsv(path: Path, facts: list[Triple]) -> Path:
    path.write_text("".join("\t".join(fact) + "\n" for fact in facts), encoding="utf-8")
    return path


def write_csv(path: Path, facts: list[Triple]) -> Path:
    rows = ["subject,predicate,object", *(",".join(f'"{part}"' for part in fact) for fact in facts)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def write_gz(path: Path, facts: list[Triple]) -> Path:
    path.write_bytes(gzip.compress("".join("\t".join(fact) + "\n" for fact in facts).encode()))
    return path


def write_parquet(path: Path, facts: list[Triple]) -> Path:
    columns = [list(column) for column in zip(*facts, strict=True)]
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(("head", "relation", "tail"), columns, strict=True))), path)
    return path


def write_nt(path: Path, facts: list[Triple]) -> Path:
    lines = (" ".join(f"<http://x.org/{part}>" for part in fact) + " .\n" for fact in facts)
    path.write_text("# a graph\n\n" + "".join(lines), encoding="utf-8")
    return path


WRITERS = {
    "graph.tsv": write_tsv,
    "graph.csv": write_csv,
    "graph.tsv.gz": write_gz,
    "graph.parquet": write_parquet,
    "graph.nt": write_nt,
}


def list_triples(kb: StoredFacts, table: str | None = None) -> set[Triple]:
    """Return the facts of a table of an engine, by labels."""
    names, domain = list(kb.predicates), kb.domains["entity"]
    rows = kb.engine.look_up(f"SELECT p, a0, a1 FROM {table or kb.facts_table}")
    heads, tails = domain.labels_of(rows["a0"]).tolist(), domain.labels_of(rows["a1"]).tolist()
    return set(zip(heads, (names[index] for index in rows["p"].tolist()), tails, strict=True))


def check_same(kb: StoredFacts, expected: rw.KnowledgeBase) -> None:
    """Compare stored facts with those of ``read_facts``, and the rules of both."""
    assert list(kb.predicates) == sorted(expected.predicates)
    assert (kb.n_facts, kb.n_entities, kb.duplicates) == (expected.n_facts, expected.n_entities, expected.duplicates)
    assert {name: kb.count(name) for name in kb.predicates} == {name: expected.count(name) for name in kb.predicates}
    assert list_triples(kb) == {(head, name, tail) for name, (head, tail) in expected.facts()}
    assert mine(kb) == mine(expected)


# Files


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("name", WRITERS)
def test_a_file_gives_the_facts_and_rules_of_read_facts(tmp_path, name, is_kept):
    path = WRITERS[name](tmp_path / name, make_triples())
    with rw.store_facts(path, database=tmp_path / "graph.duckdb" if is_kept else None) as kb:
        check_same(kb, rw.read_facts(path))
        assert "@{support:" in mine(kb)
    assert (tmp_path / "graph.duckdb").exists() == is_kept


@pytest.mark.parametrize("ending", ["parquet", "tsv", "csv", "nt"])
@pytest.mark.parametrize("pattern", ["", "/*", "/part-?.*"])
def test_parts_are_one_graph(tmp_path, ending, pattern):
    facts, writer = make_triples(), WRITERS[f"graph.{ending}"]
    (tmp_path / "parts").mkdir()
    for part in range(3):
        writer(tmp_path / "parts" / f"part-{part}.{ending}", facts[part::3])
    (tmp_path / "parts" / ".hidden").write_text("nothing")
    (tmp_path / "parts" / "_SUCCESS").write_text("")
    whole = writer(tmp_path / f"whole.{ending}", facts)
    with rw.store_facts(f"{tmp_path / 'parts'}{pattern}") as kb:
        check_same(kb, rw.read_facts(whole))


def test_a_folder_of_splits_has_one_vocabulary(tmp_path):
    facts = make_triples()
    for split, part in (("train", facts[:200]), ("valid", facts[200:250]), ("test", facts[250:])):
        write_tsv(tmp_path / f"{split}.tsv", part)
    with rw.store_facts(tmp_path) as kb:
        expected = rw.read_facts(tmp_path)
        check_same(kb, expected)
        assert list(kb.splits) == list(expected.splits) == ["valid", "test"]
        for name, split in kb.splits.items():
            assert split.n_facts == expected.splits[name].n_facts
            assert list_triples(split) == {(h, relation, t) for relation, (h, t) in expected.splits[name].facts()}
            head, relation, tail = facts[220 if name == "valid" else 290]
            assert split.contains(relation, head, tail)
        assert repr(kb).endswith(f"valid: {kb.splits['valid'].n_facts}, test: {kb.splits['test'].n_facts})")


def test_columns_are_chosen_by_name_or_in_order(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("id,to,from,what\n1,b,a,knows\n2,c,b,knows\n", encoding="utf-8")
    with rw.store_facts(path, columns="_,tail,head,relation") as kb:
        assert list_triples(kb) == {("a", "knows", "b"), ("b", "knows", "c")} or kb.n_facts == 3
    pyarrow.parquet.write_table(
        pyarrow.table({"to": ["b", "c"], "what": ["knows"] * 2, "from": ["a", "b"], "n": [1, 2]}),
        tmp_path / "wide.parquet",
    )
    with rw.store_facts(tmp_path / "wide.parquet", columns=["tail", "relation", "head", "_"]) as kb:
        assert list_triples(kb) == {("a", "knows", "b"), ("b", "knows", "c")}


@pytest.mark.parametrize(
    ("name", "text", "error", "message"),
    [
        ("two.tsv", "a\tb\n", ParseError, "columns"),
        ("hole.tsv", "a\tr\tb\na\t\tb\n", ParseError, "relation"),
        ("short.tsv", "a\tr\tb\na\tr\n", ParseError, "columns"),
        ("empty.tsv", "", ParseError, "empty"),
        ("header.csv", "head,relation,tail\n", ParseError, "no facts"),
        ("bad.nt", "<http://a> <http://r> <http://b> .\nnonsense\n", ParseError, "not N-Triples: 'nonsense'"),
        ("empty.nt", "", ParseError, "no "),
        ("bad.parquet", "not a table", ParseError, "bad.parquet"),
        ("rules.xlsx", "x", DataError, "found .xlsx"),
        ("none.tsv", None, FileError, "no such file or folder"),
        ("*.none", None, DataError, "found no files"),
    ],
)
@pytest.mark.parametrize("is_kept", [False, True])
def test_what_cannot_be_read_is_one_line_and_leaves_nothing(tmp_path, name, text, error, message, is_kept):
    path, database = tmp_path / name, tmp_path / "graph.duckdb" if is_kept else None
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(error, match=message.replace("*", "\\*")) as caught:
        rw.store_facts(path, database=database)
    assert isinstance(caught.value, RulewrightError) and "\n" not in str(caught.value)
    if is_kept:
        good = write_tsv(tmp_path / "good.tsv", make_triples())
        with rw.store_facts(good, database=database) as kb:
            check_same(kb, rw.read_facts(good))


def test_holes_in_parquet_are_refused(tmp_path):
    columns = {"head": ["a", "a"], "relation": ["r", "r"], "tail": ["b", None]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "hole.parquet")
    with pytest.raises(ParseError, match=r"1 rows lack a head, a relation or a tail, such as 'a r'"):
        rw.store_facts(tmp_path / "hole.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"head": ["a"], "tail": ["b"]}), tmp_path / "narrow.parquet")
    with pytest.raises(DataError, match=r"columns|relation"):
        rw.store_facts(tmp_path / "narrow.parquet")


def test_formats_are_not_mixed(tmp_path):
    write_tsv(tmp_path / "a.tsv", make_triples())
    write_nt(tmp_path / "b.nt", make_triples())
    with pytest.raises(DataError, match=r"files of one format .* found \.nt, \.tsv; convert others first"):
        rw.store_facts(tmp_path)
    with pytest.raises(DataError, match="engine must be 'duckdb', an address of Spark"):
        rw.store_facts(tmp_path / "a.tsv", engine="postgres")
    with pytest.raises(DataError, match="a folder keeps the tables of Spark"):
        rw.store_facts(tmp_path / "a.tsv", folder=tmp_path / "kept")


@pytest.mark.parametrize("name", ["graph.parquet", "graph.tsv"])
def test_labels_may_hold_anything(tmp_path, name):
    labels = [*ODD_LABELS, *(["tab\there", "new\nline"] if name == "graph.parquet" else [])]
    facts = [(one, relation, other) for one in labels for other in labels for relation in ("r", "it's \\ so")]
    path = WRITERS[name](tmp_path / name, facts)
    with rw.store_facts(path, database=tmp_path / "graph.duckdb") as kb:
        assert list_triples(kb) == set(facts)
        domain = kb.domains["entity"]
        for label in labels:
            assert domain.labels_of(domain.index_of(label)) == label
            assert kb.contains("it's \\ so", label, labels[0])
        assert not kb.contains("r", labels[0], "nobody")
        rules = parse_rules("0.5 :: new(X, Y) :- r(X, Y), r(Y, 'back\\\\slash').")
        assert {fact.args for fact in rw.apply(rules, kb)} == {(one, other) for one, _, other in facts}


def test_numerals_are_names_and_it_is_said(tmp_path):
    facts = [("ann", "age", "41"), ("bob", "age", "-7"), ("ann", "knows", "bob"), ("bob", "knows", "1st")]
    with rw.store_facts(write_tsv(tmp_path / "ages.tsv", facts)) as kb:
        (note,) = kb.notes
        assert note.startswith("the tails of age look like numbers and are names here; read_facts")
        assert kb.contains("age", "ann", "41")


# What is kept


def refuse(*_: object) -> list[str]:
    raise AssertionError("files are read again")


def count_work(monkeypatch) -> list[str]:
    """Return a list that gets every operation that is done, and not taken from a journal."""
    done: list[str] = []
    perform = SQLEngine._perform

    def noted(self, action, name, text, work):
        return perform(self, action, name, text, lambda: (done.append(f"{action} {name} {text[:60]}"), work())[1])

    monkeypatch.setattr(SQLEngine, "_perform", noted)
    return done


def test_a_database_is_not_read_again(tmp_path, monkeypatch):
    path, database = write_tsv(tmp_path / "graph.tsv", make_triples()), tmp_path / "graph.duckdb"
    with rw.store_facts(path, database=database) as kb:
        expected, told, rules = list_triples(kb), repr(kb), mine(kb)
    monkeypatch.setattr(stored_facts, "read_by_duckdb", refuse)
    done = count_work(monkeypatch)
    for again in (path, database):
        with rw.store_facts(again, database=database) as kb:
            assert (list_triples(kb), repr(kb), mine(kb)) == (expected, told, rules)
    with rw.store_facts(database) as kb:
        assert (list_triples(kb), repr(kb), mine(kb)) == (expected, told, rules)
    assert not done
    path.unlink()
    with rw.store_facts(database) as kb:
        assert kb.n_facts and mine(kb) == rules


def test_a_changed_file_is_read_again(tmp_path):
    path, database = write_tsv(tmp_path / "graph.tsv", make_triples()), tmp_path / "graph.duckdb"
    with rw.store_facts(path, database=database) as kb:
        mine(kb)
    write_tsv(path, make_triples(1, 200))
    for _ in range(2):
        with rw.store_facts(path, database=database) as kb:
            check_same(kb, rw.read_facts(path))


def test_other_work_on_the_same_database_is_done_anew(tmp_path, monkeypatch):
    path, database = write_tsv(tmp_path / "graph.tsv", make_triples()), tmp_path / "graph.duckdb"
    mined = rw.RuleMiner(max_length=2, constants=False, unary=False, thresholds=False).fit(rw.read_facts(path)).rules_
    rules = rw.RuleSet(mined.rules[:30])
    expected = collect(rw.apply(rules, rw.read_facts(path), max_rounds=None))
    with rw.store_facts(path, database=database) as kb:
        assert mine(kb) == str(mined)
        assert collect(rw.apply(rules, kb, max_rounds=None)) == expected
        assert collect(rw.apply(rules, kb, max_rounds=1)) == collect(rw.apply(rules, rw.read_facts(path)))
    with rw.store_facts(path, database=database) as kb:
        assert collect(rw.apply(rules, kb, max_rounds=None)) == expected
        done = count_work(monkeypatch)
        assert collect(rw.apply(rules, kb, max_rounds=None)) == expected
        assert not [step for step in done if "wanted_fact" not in step]


@pytest.mark.slow
@pytest.mark.parametrize("after", (3, 11, 17, 25, 40))
def test_a_run_that_was_cut_off_goes_on(tmp_path, monkeypatch, after):
    path, database = write_tsv(tmp_path / "graph.tsv", make_triples(2, 120)), tmp_path / "graph.duckdb"
    perform = SQLEngine._perform
    counts = {"left": after, "done": 0}

    def fail(self, action, name, text, work):
        def count():
            if not counts["left"]:
                raise KeyboardInterrupt
            counts["left"] -= 1
            counts["done"] += 1
            return work()

        return perform(self, action, name, text, count)

    rules = parse_rules(
        "0.9 :: r0(X, Y) :- r1(X, Y). 0.5 :: r2(X, Z) :- r0(X, Y), r3(Y, Z). 0.8 :: r3(X, Y) :- r2(Y, X)."
    )

    def work() -> tuple[str, dict]:
        with rw.store_facts(path, database=database) as kb:
            return mine(kb), collect(rw.apply(rules, kb, max_rounds=None))

    monkeypatch.setattr(SQLEngine, "_perform", fail)
    with pytest.raises(KeyboardInterrupt):
        work()
    counts |= {"left": 10**6, "done": 0}
    found, kb = work(), rw.read_facts(path)
    resumed = counts["done"]
    assert found == (mine(kb), collect(rw.apply(rules, kb, max_rounds=None)))
    counts |= {"done": 0}
    database.unlink()
    work()
    assert resumed <= counts["done"] - after


def test_a_database_without_facts_says_so(tmp_path):
    with pytest.raises(FileError, match=r"none\.duckdb: no such file"):
        rw.store_facts(tmp_path / "none.duckdb")
    assert not [*tmp_path.iterdir()]
    Engine(path=tmp_path / "none.duckdb").close()
    with pytest.raises(DataError, match="holds no facts yet; read some into it"):
        rw.store_facts(tmp_path / "none.duckdb")
    (tmp_path / "text.duckdb").write_text("not a database")
    with pytest.raises(DataError, match="cannot start DuckDB") as caught:
        rw.store_facts(tmp_path / "text.duckdb")
    assert "\n" not in str(caught.value)


# What is asked


def test_columns_stay_in_the_engine(tmp_path):
    with rw.store_facts(write_tsv(tmp_path / "graph.tsv", make_triples())) as kb:
        for ask in (lambda: kb.tables()["ee"], lambda: list(kb.facts()), lambda: kb.tuples("r0")):
            with pytest.raises(DataError, match="these facts stay in an engine"):
                ask()
        with pytest.raises(DataError, match="facts that stay in an engine give chains of relations; unary"):
            rw.RuleMiner(unary=True).fit(kb)


def test_labels_are_looked_up(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_facts, "_MOST_LABELS", 7)
    facts = make_triples()
    with rw.store_facts(write_tsv(tmp_path / "graph.tsv", facts)) as kb:
        domain = kb.domains["entity"]
        labels = sorted({part for head, _, tail in facts for part in (head, tail)})
        assert len(domain) == kb.n_entities == len(labels)
        assert domain.find_all([*labels, "none"]).tolist() == [*range(len(labels)), -1]
        assert domain.labels_of(range(len(labels))).tolist() == labels
        assert domain.labels_of([[2, 0], [0, 1]]).tolist() == [[labels[2], labels[0]], [labels[0], labels[1]]]
        assert domain.labels_of(3) == labels[3]
        assert "e1" in domain and "none" not in domain and domain.find("none") is None
        with pytest.raises(UnknownNameError, match=r"unknown entity 'e1x' among \d+; some begin alike"):
            domain.index_of("e1x")
        with pytest.raises(UnknownNameError):
            kb.predicate("none")
        for ask in (lambda: domain.labels, domain.members):
            with pytest.raises(DataError, match="stay in the engine"):
                ask()


# Rules applied and facts explained


def random_triples(chance: random.Random) -> list[Triple]:
    shares = (("e", 0.3), ("p", 0.08))
    facts = [(a, r, b) for r, share in shares for a in NAMES for b in NAMES if chance.random() < share]
    return [("a", "e", "C"), *facts, *(("b's", name, "e") for name in "pq" if chance.random() < 0.5)]


def collect(inferred: rw.reason.Inferred) -> dict[tuple, tuple]:
    """Return what was inferred, whatever its order."""
    return {
        (fact.predicate, *fact.args): (round(fact.score, 9), sorted(map(str, fact.rules)), fact.round)
        for fact in inferred
    }


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    seed=SEEDS,
    aggregation=st.sampled_from(("max", "max-plus", "noisy-or")),
    max_rounds=st.sampled_from((1, 2, None)),
    min_score=st.sampled_from((0.0, 0.4)),
    is_kept=st.booleans(),
)
def test_rules_give_the_same_as_in_memory(tmp_path_factory, seed, aggregation, max_rounds, min_score, is_kept):
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("applied")
    rules = recursive_rules(chance)
    path = write_tsv(folder / "graph.tsv", random_triples(chance))
    options = {"aggregation": aggregation, "max_rounds": max_rounds, "min_score": min_score}
    kb = rw.read_facts(path)
    with rw.store_facts(path, database=folder / "graph.duckdb" if is_kept else None) as stored:
        try:
            expected = rw.apply(rules, kb, **options)
        except DataError as error:
            with pytest.raises(DataError) as caught:
                rw.apply(rules, stored, **options)
            assert str(caught.value) == str(error)
            return
        inferred = rw.apply(rules, stored, **options)
        assert isinstance(inferred, StoredInferred) and len(inferred) == len(expected)
        assert collect(inferred) == collect(expected)
        assert (inferred.rounds, inferred.exact) == (expected.rounds, expected.exact)
        scores = [round(fact.score, 9) for fact in inferred]
        assert scores == [round(fact.score, 9) for fact in expected]
        for fact in [*inferred][:3]:
            for depth in (1, 3):
                told = (
                    (found.status, round(found.score, 9), [round(proof.score, 9) for proof in found.proofs])
                    for found in (rw.explain(rules, base, str(fact), k=3, depth=depth) for base in (stored, kb))
                )
                assert next(told) == next(told)


RULES = parse_rules("""
0.9 :: p(X, Y) :- e(X, Y).
0.5 :: p(X, Y) :- e(Y, X).
0.8 :: p(X, Z) :- p(X, Y), e(Y, Z).
0.7 :: p(X, 'C') :- e(X, Y), !e(Y, 'C').
0.6 :: near(X, Y) :- p(X, Y), X != Y.
""")


@pytest.fixture
def applied(tmp_path):
    path = write_tsv(tmp_path / "graph.tsv", random_triples(random.Random(3)))
    with rw.store_facts(path) as stored:
        yield rw.apply(RULES, stored, max_rounds=None), rw.apply(RULES, rw.read_facts(path), max_rounds=None)


def test_slices_are_parts_of_the_whole(applied, monkeypatch):
    inferred, expected = applied
    every = [*inferred]
    assert len(every) == len(inferred) == len(expected) > 20
    for chosen in (slice(3), slice(2, 9, 3), slice(-4, None), slice(None, None, -1), slice(9, 2, -2), slice(5, 5)):
        assert inferred[chosen] == every[chosen]
    assert (inferred[0], inferred[-1], inferred[7]) == (every[0], every[-1], every[7])
    with pytest.raises(IndexError):
        inferred[len(every)]
    monkeypatch.setattr("rulewright.reason.stored_inferred.BATCH", 4)
    assert [*inferred] == every
    for ask in (lambda: inferred.facts, lambda: inferred.completed, lambda: inferred.columns("p")):
        with pytest.raises(DataError, match="the new facts stay in the engine"):
            ask()


@pytest.mark.parametrize("is_complete", [False, True])
@pytest.mark.parametrize("name", ["new.tsv", "new.csv", "new.parquet", "parts"])
def test_what_is_written_is_read_back(applied, tmp_path, name, is_complete):
    inferred, expected = applied
    target = tmp_path / "out" / name
    target.parent.mkdir()
    for _ in range(2):  # the second time in place of the first
        inferred.write(str(target), complete=is_complete, partition=name == "parts")
        assert [path.name for path in target.parent.iterdir()] == [name]
    triples = {(fact.args[0], fact.predicate, fact.args[1]) for fact in expected}
    if is_complete:
        triples |= {(head, relation, tail) for relation, (head, tail) in expected.kb.facts()}
    if name == "parts":
        parts = sorted(path.name for path in target.iterdir())
        assert parts == sorted({f"relation={relation}" for _, relation, _ in triples})
        table = pyarrow.parquet.read_table(target)
        columns = (table[column].to_pylist() for column in ("head", "relation", "tail"))
        assert set(zip(*columns, strict=True)) == triples
    else:
        with rw.store_facts(target, columns="head,relation,tail" + ("" if is_complete else ",_,_,_")) as kb:
            assert list_triples(kb) == triples


def test_scores_rounds_and_rules_are_written(applied, tmp_path):
    inferred, expected = applied
    inferred.write(str(tmp_path / "new.parquet"))
    rows = pyarrow.parquet.read_table(tmp_path / "new.parquet").to_pylist()
    told = {
        (row["relation"], row["head"], row["tail"]): (
            round(row["score"], 9),
            row["round"],
            sorted(map(int, row["rules"].split())),
        )
        for row in rows
    }
    assert told == {
        (fact.predicate, *fact.args): (round(fact.score, 9), fact.round, sorted(fact.numbers)) for fact in expected
    }


def test_no_new_facts_are_written_as_none(tmp_path):
    with rw.store_facts(write_tsv(tmp_path / "graph.tsv", make_triples())) as kb:
        inferred = rw.apply(parse_rules("new(X, Y) :- r0(X, Y), r0(Y, X), r1(X, X), r2(X, X), r3(X, X)."), kb)
        assert len(inferred) == 0 and [*inferred] == [] and inferred[:5] == []
        inferred.write(str(tmp_path / "new.parquet"))
        assert pyarrow.parquet.read_table(tmp_path / "new.parquet").num_rows == 0
        linked = rw.apply(parse_rules("linked(X) :- r0(X, Y)."), kb)
        with pytest.raises(DataError, match="files of triples hold relations alone"):
            linked.write(str(tmp_path / "linked.parquet"))
        with pytest.raises(FileError, match="cannot write"):
            rw.apply(RuleSet(parse_rules("new(X, Y) :- r0(X, Y).")), kb).write(str(tmp_path / "none" / "new.parquet"))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.tsv", "new.parquet"]


CHAINED = parse_rules("0.9 :: r0(X, Y) :- r1(X, Y). 0.5 :: r2(X, Z) :- r0(X, Y), r3(Y, Z).")
OTHERS = parse_rules("0.3 :: r2(X, Y) :- r3(Y, X). 0.3 :: r3(X, Y) :- r2(Y, X).")


@pytest.fixture
def kept(tmp_path):
    """Facts in a database, what CHAINED infers from them, and a fact for OTHERS to explain."""
    path = write_tsv(tmp_path / "graph.tsv", make_triples())
    kb = rw.read_facts(path)
    with rw.store_facts(path, database=tmp_path / "graph.duckdb") as stored:
        yield stored, collect(rw.apply(CHAINED, kb, max_rounds=None)), str(next(iter(rw.apply(OTHERS, kb))))


def stop_round(number: int, error: BaseException):
    """Return a round of rules that is stopped by an error, after so many that are not."""
    run_round, rounds = ForwardChaining._run_round, iter(range(100))

    def run(self, blocks, *, known):
        if next(rounds) == number:
            raise error
        run_round(self, blocks, known=known)

    return run


@pytest.mark.parametrize("number", [0, 1])
def test_a_run_within_a_time_limit_can_be_run_again_without(kept, monkeypatch, number):
    kb, expected, _ = kept
    with monkeypatch.context() as patch:
        patch.setattr(ForwardChaining, "_run_round", stop_round(number, TimeLimitError("stopped after 1 s; ask less")))
        cut = rw.apply(CHAINED, kb, max_rounds=None, time_limit=60)
    assert not cut.exact and "stopped after 1 s" in cut.note
    assert collect(rw.apply(CHAINED, kb, max_rounds=None)) == expected


@pytest.mark.parametrize("number", [0, 1])
def test_what_does_not_fit_a_run_is_let_go(kept, monkeypatch, number):
    kb, expected, _ = kept
    with monkeypatch.context() as patch:
        patch.setattr(ForwardChaining, "_run_round", stop_round(number, TimeLimitError("stopped after 1 s; ask less")))
        rw.apply(CHAINED, kb, max_rounds=None, time_limit=60)
    with suppress(DataError):
        rw.apply(CHAINED, kb, max_rounds=None)
    assert collect(rw.apply(CHAINED, kb, max_rounds=None)) == expected


def test_explaining_does_not_change_what_a_run_goes_on_from(kept):
    kb, expected, fact = kept
    assert collect(rw.apply(CHAINED, kb, max_rounds=None)) == expected
    assert rw.explain(OTHERS, kb, fact, depth=3)
    assert collect(rw.apply(CHAINED, kb, max_rounds=None)) == expected


def test_explaining_after_a_run_that_failed_does_not_end_it(kept, monkeypatch):
    kb, expected, fact = kept
    with monkeypatch.context() as patch:
        patch.setattr(ForwardChaining, "_run_round", stop_round(1, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            rw.apply(CHAINED, kb, max_rounds=None)
    assert rw.explain(OTHERS, kb, fact, depth=1)
    assert collect(rw.apply(CHAINED, kb, max_rounds=None)) == expected
