from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rulewright.cli import app


@pytest.fixture
def graph(tmp_path):
    facts = []
    for n in range(24):
        facts += [(f"child{n}", "parent", f"father{n}"), (f"father{n}", "brother", f"uncle{n}")]
    uncles = [(f"child{n}", "uncle", f"uncle{n}") for n in range(24)]
    for name, triples in {"train": facts + uncles[:16], "valid": uncles[16:20], "test": uncles[20:]}.items():
        (tmp_path / f"{name}.tsv").write_text("".join("\t".join(triple) + "\n" for triple in triples))
    return tmp_path


def test_rules_are_learned_and_then_rank(graph):
    run = CliRunner()
    rules = graph / "learned.rules"
    options = ["--learner", "paths", "--max-length", "2", "--target", "uncle", "-o", str(rules)]
    learned = run.invoke(app, ["learn", str(graph), *options])
    assert learned.exit_code == 0, learned.output
    other = ["--learner", "lnn", *options[2:-1], str(graph / "same.rules")]
    assert "learns a mixture of paths" in run.invoke(app, ["learn", str(graph), *other]).stderr
    assert (graph / "same.rules").read_text() == rules.read_text()
    scored = run.invoke(app, ["evaluate", "kbc", str(rules), str(graph), "--json"])
    assert scored.exit_code == 0, scored.output
    figures = json.loads(scored.stdout)
    assert figures["questions"] == 8
    assert figures["mrr"] == pytest.approx(1.0)
    shown = run.invoke(app, ["evaluate", "kbc", str(rules), str(graph), "--by-relation", "--ties", "pessimistic"])
    assert "uncle" in shown.stdout and "pessimistic" in shown.stdout


def test_learned_rules_are_shown(graph):
    shown = CliRunner().invoke(
        app, ["learn", str(graph), "--learner", "paths", "--max-length", "2", "--target", "uncle"]
    )
    assert shown.exit_code == 0
    assert "weight" in shown.stdout and "brother(V1, Y)" in shown.stdout


def test_the_completion_learner_by_one_word_and_a_limit_of_time(graph):
    clash = CliRunner().invoke(app, ["learn", str(graph), "--best", "--learner", "mine"])
    assert clash.exit_code == 2 and "--best is --learner paths" in clash.stderr
    refused = CliRunner().invoke(app, ["learn", str(graph), "--best", "--circular"])
    assert refused.exit_code == 2 and "--learner mine" in refused.stderr
    stopped = CliRunner().invoke(app, ["learn", str(graph), "--time", "0.000001", "--top", "2"])
    assert stopped.exit_code == 0 and "stopped after" in stopped.stderr


def test_a_sample_is_said(graph):
    command = ["learn", str(graph), "--max-length", "3", "--min-confidence", "0.1", "--target", "uncle"]
    assert CliRunner().invoke(app, command).stderr == "valid (4 facts) and test (4 facts): splits, not learned from\n"
    sampled = CliRunner().invoke(app, [*command, "--sample", "16"])
    assert sampled.exit_code == 0 and "counted from a sample of 16 of" in sampled.stderr and "95 %" in sampled.stderr


def test_an_unknown_split_is_named(graph):
    rules = graph / "some.rules"
    rules.write_text("0.9 :: uncle(X, Z) :- parent(X, Y), brother(Y, Z).\n")
    answer = CliRunner().invoke(app, ["evaluate", "kbc", str(rules), str(graph), "--split", "dev"])
    assert answer.exit_code != 0


def test_templates_are_filled(tmp_path):
    (tmp_path / "graph.tsv").write_text(
        "".join(f"a{n}\tchild\tb{n}\nb{n}\tchild\tc{n}\na{n}\tgrandchild\tc{n}\n" for n in range(8))
    )
    template = "template grandchild(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in {child}, ?Q in {child, grandchild}."
    (tmp_path / "shape.rules").write_text(template)
    place, shape = str(tmp_path / "graph.tsv"), str(tmp_path / "shape.rules")
    found = CliRunner().invoke(app, ["learn", place, "--learner", "lnn", "--templates", shape, "-o", "-"])
    assert found.exit_code == 0, found.output
    assert "grandchild(X, Y) :- child(X, Z), child(Z, Y)." in found.stdout
    (tmp_path / "other.rules").write_text(template.replace("?P in {child}", "?P in {grandchild}"))
    nothing = ["learn", place, "--learner", "lnn", "--templates", str(tmp_path / "other.rules")]
    weighted = CliRunner().invoke(app, nothing)
    assert weighted.exit_code == 0 and "holds no example true" in weighted.stderr
    assert "weighted form: template grandchild(X, Z)" in weighted.stderr
    refused = CliRunner().invoke(app, ["learn", place, "--templates", shape])
    assert refused.exit_code == 2 and "for --learner lnn" in refused.output


@pytest.mark.slow
def test_rules_are_written_by_transformers(tmp_path):
    (tmp_path / "graph.tsv").write_text(
        "".join(f"a{n}\tchild\tb{n}\na{n}\tlikes\tb{n + 1}\nb{n}\tparent\ta{n}\n" for n in range(12))
    )
    place = str(tmp_path / "graph.tsv")
    found = CliRunner().invoke(
        app, ["learn", place, "--learner", "nlil", "--target", "parent", "--min-confidence", "1", "--json"]
    )
    assert found.exit_code == 0, found.output
    rules = json.loads(found.stdout)
    assert any(each["rule"].split(" @{")[0].endswith(":- child(Y, X).") for each in rules)
    assert all(each["confidence"] == 1 for each in rules)


def test_any_parameter_of_the_transformers_can_be_set(tmp_path):
    (tmp_path / "graph.tsv").write_text("".join(f"a{n}\tchild\tb{n}\nb{n}\tparent\ta{n}\n" for n in range(12)))
    command = ["learn", str(tmp_path / "graph.tsv"), "--learner", "nlil", "--target", "parent", "--json"]
    quick = ["--set", "epochs=0", "--set", "layers=1", "--set", "negation=true", "--set", "max-edges=none"]
    found = CliRunner().invoke(app, [*command, *quick])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)[0]["rule"].startswith("parent(X, Y) :- child(Y, X).")
    for wrong, message in (
        ("epochs", "--set takes NAME=VALUE"),
        ("epoch=0", "unknown parameter 'epoch'"),
        ("epochs=many", "epochs must be a whole number, got 'many'"),
        ("seed=1", "seed is given twice, or has an option of its own"),
    ):
        refused = CliRunner().invoke(app, [*command, "--set", wrong])
        assert refused.exit_code and message in str(refused.exception or "") + refused.output, refused.output


def test_any_parameter_of_the_mixture_can_be_set(graph):
    command = ["learn", str(graph), "--learner", "paths", "--max-length", "2", "--target", "uncle", "--json"]
    plain = json.loads(CliRunner().invoke(app, command).stdout)
    parallel = CliRunner().invoke(app, [*command, "--processes", "1", "--set", "l2=1"])
    assert json.loads(parallel.stdout) == plain
    strict = CliRunner().invoke(app, [*command, "--set", "l2=50", "--set", "loss=logistic", "--set", "max-edges=none"])
    assert strict.exit_code == 0, strict.output
    assert json.loads(strict.stdout) != plain
    for wrong, message in (
        ("l3=1", "unknown parameter 'l3'"),
        ("loss=best", "loss must be"),
        ("queries=9", "queries is given twice, or has an option of its own"),
        ("paths=1", "unknown parameter 'paths'"),
    ):
        refused = CliRunner().invoke(app, [*command, "--set", wrong])
        assert refused.exit_code and message in str(refused.exception or "") + refused.output, refused.output
    mined = CliRunner().invoke(app, ["learn", str(graph), "--set", "l2=1"])
    assert mined.exit_code == 2 and "it is for --learner paths and nlil; mine would ignore it" in mined.stderr
    mined = CliRunner().invoke(app, ["learn", str(graph), "--processes", "2"])
    assert mined.exit_code == 2 and "for --learner paths, lnn and nlil; mine" in " ".join(mined.stderr.split())


def test_an_evaluation_sets_parameters_of_its_learner(graph):
    command = ["evaluate", "kbc", str(graph), "--json"]
    for learner in ("mine", "paths"):
        short = CliRunner().invoke(app, [*command, "--learner", learner, "--set", "max_length=1"])
        assert short.exit_code == 0, short.output
        usual = CliRunner().invoke(app, [*command, "--learner", learner, "--set", "max_length=2"])
        assert json.loads(short.stdout)["mrr"] < json.loads(usual.stdout)["mrr"]
    refused = CliRunner().invoke(app, [*command, "--set", "l2=1"])
    assert refused.exit_code and "unknown parameter 'l2'" in str(refused.exception)
    rules = graph / "some.rules"
    rules.write_text("0.9 :: uncle(X, Z) :- parent(X, Y), brother(Y, Z).\n")
    refused = CliRunner().invoke(app, ["evaluate", "kbc", str(rules), str(graph), "--set", "l2=1"])
    assert refused.exit_code == 2 and "rules are given" in refused.stderr


def test_a_folder_says_what_is_learned_from(graph):
    (graph / "facts.tsv").write_text("".join(f"child{n}\tfriend\tchild{n + 1}\n" for n in range(12)))
    (graph / "README.md").write_text("about")
    learned = CliRunner().invoke(app, ["learn", str(graph), "--learner", "paths", "--target", "uncle"])
    assert learned.exit_code == 0, learned.output
    name = graph.name
    assert learned.stderr.splitlines()[:3] == [
        f"{name}: train.tsv and facts.tsv together are the main facts",
        f"{name}: left out: README.md (a document)",
        "valid (4 facts) and test (4 facts): splits, not learned from; training is measured on valid",
    ]
    assert "from 76 facts" in learned.stdout


RULES = "0.9 :: uncle(X, Z) :- parent(X, Y), brother(Y, Z).\n"


def test_predictions_go_to_a_file(graph):
    rules, place = graph / "some.rules", graph.parent / "ranks.tsv"
    rules.write_text(RULES)
    command = ["evaluate", "kbc", str(rules), str(graph)]
    scored = CliRunner().invoke(app, [*command, "--predictions", str(place), "--top", "2"])
    assert scored.exit_code == 0, scored.output
    assert f"8 queries with their best answers, written to {place}" in " ".join(scored.stderr.split())
    header, *rows = (line.split("\t") for line in place.read_text().splitlines())
    assert header[:8] == ["relation", "direction", "asked", "answer", "rank", "higher", "equal", "score"]
    assert header[8:] == ["top_1", "score_1", "top_2", "score_2"]
    assert len(rows) == 8
    assert rows[0] == ["uncle", "forward", "child20", "uncle20", "1", "0", "1", "0.9", "uncle20", "0.9", "", ""]
    piped = CliRunner().invoke(app, [*command, "--predictions", "-", "--top", "2"])
    assert piped.stdout == place.read_text()
    for options, message in (
        (["--top", "3"], "how many answers --predictions writes"),
        (["--json", "--predictions", "-"], "name a file"),
        (["--predictions", "ranks.txt"], "predictions are written as .tsv"),
        (["--predictions", str(graph / "train.tsv")], "it is what is read"),
        (["--predictions", str(place), "--database", str(graph / "a.duckdb")], "kept of facts in memory"),
    ):
        refused = CliRunner().invoke(app, [*command, *options])
        assert refused.exit_code, options
        assert message in " ".join(f"{refused.exception or ''} {refused.stderr}".split()), refused.output


def test_figures_by_cardinality(graph):
    (graph / "some.rules").write_text(RULES)
    command = ["evaluate", "kbc", str(graph / "some.rules"), str(graph)]
    shown = CliRunner().invoke(app, [*command, "--by-cardinality"])
    assert shown.exit_code == 0, shown.output
    assert "cardinality" in shown.stdout and "1-1" in shown.stdout and "n-n" not in shown.stdout
    figures = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["by_cardinality"]
    assert figures["1-1"]["relations"] == 1 and figures["1-1"]["questions"] == 8
    stored = CliRunner().invoke(app, [*command, "--json", "--database", str(graph / "a.duckdb")])
    assert json.loads(stored.stdout)["by_cardinality"] == figures
