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
    assert CliRunner().invoke(app, command).stderr == ""
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
