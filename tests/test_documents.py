"""What the documents show is run: Python blocks, examples, and the commands they name."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(path: Path, language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(path.read_text(encoding="utf-8")) if name == language]


@pytest.mark.slow
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_blocks_run(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(path, "python"):
        exec(compile(block, path.name, "exec"), names)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_rules_in_documents_parse(path):
    from rulewright import parse_rules

    for block in blocks(path, "prolog"):
        assert len(parse_rules(block, file=path.name)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(path, tmp_path):
    result = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_run(path, tmp_path, monkeypatch):
    """Run the cells as a notebook does; what the last line of a cell is must show itself."""
    pytest.importorskip("polars")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    shown = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert not cell["outputs"], "outputs are not kept"
        statements = ast.parse("".join(cell["source"])).body
        last = statements[-1]
        assert isinstance(last, ast.Expr)
        exec(compile(ast.Module(statements[:-1], []), path.name, "exec"), names)
        value = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
        shown.append(value._repr_html_())  # type: ignore[attr-defined]
    assert any("<svg" in text for text in shown) and all("<" in text for text in shown)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_commands_in_the_readme_exist():
    from typer.main import get_command

    from rulewright.cli import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    named = re.findall(r"^rulewright (\w+)(?: (\w+))?", "\n".join(blocks(ROOT / "README.md", "sh")), re.MULTILINE)
    assert named
    for command, sub in named:
        assert command in commands
        if command == "data":
            assert sub in commands["data"].commands


@pytest.mark.slow
def test_commands_that_complete_a_graph_run(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from rulewright.cli import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph").mkdir()
    rows = {name: list[str]() for name in ("train", "valid", "test", "facts")}
    for n in range(24):
        rows["facts"] += [f"child{n}\tparent\tfather{n}\n", f"father{n}\tbrother\tuncle{n}\n"]
        rows["train" if n < 16 else "valid" if n < 20 else "test"].append(f"child{n}\tuncle\tuncle{n}\n")
    for name, lines in rows.items():
        (tmp_path / "graph" / f"{name}.tsv").write_text("".join(lines))
    section = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8").partition("## Completing a graph")[2]
    commands = BLOCK.findall(section)[0][1].splitlines()
    assert len(commands) == 6
    for command in commands:
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == 0, (command, done.output, done.exception)
        assert "graph: train.tsv and facts.tsv together are the main facts" in done.stderr
    header, *ranks = (tmp_path / "ranks.tsv").read_text().splitlines()
    documented = re.findall(r"^\| ([\w, ]+?)(?:, …)? \|", section.partition("| column |")[2], re.MULTILINE)
    named = [name for cell in documented for name in cell.split(", ")]
    assert header.split("\t")[: len(named)] == named and len(ranks) == 8
    assert (tmp_path / "new.tsv").exists()


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "results").glob("*.json")), ids=lambda path: path.name)
def test_results_are_figures_and_name_no_machine(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 50_000, "figures, not dumps"
    assert not re.search(r"[\" =](/root|/tmp|/home|/work|/Users)/", text), "paths of a machine"
