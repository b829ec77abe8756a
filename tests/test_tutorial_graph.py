"""The walk of docs/tutorial-graph.md, command by command: what it says is printed is printed."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest

from rulewright.web.rulebook import Rulebook

pytestmark = pytest.mark.slow

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial-graph.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def said(text: str) -> list[str]:
    """Return the lines of a text; how long something took is no part of what it says."""
    return [re.sub(r"\d+\.\d s\b", "… s", line.rstrip()) for line in text.strip("\n").splitlines()]


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rulewright", *command[1:]],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def correct(rules: Path) -> None:
    """Switch off all rules but two, and make one of these certain."""
    book = Rulebook(rules)
    for entry in book.entries:
        if "married_to(V0, V1) :- married_to(V1, V0)." in entry.text:
            book.edit(entry.key, re.sub(r"^\S+ :: ", "", entry.text))
        elif "citizen_of(V0, V2) :- lives_in(V0, V1), located_in(V1, V2)." not in entry.text:
            book.set_enabled(entry.key, False)
    book.save()


def serve(command: list[str], folder: Path) -> None:
    """Serve, see that a page comes, and correct the rules as the pages do."""
    pytest.importorskip("nicegui", reason="the explorer needs the extra web")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "rulewright", *command[1:], "--port", str(port)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=plain,
    )
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as page:
                    assert "Rulewright" in page.read().decode()
                    break
            except OSError:
                assert process.poll() is None
                time.sleep(0.1)
        correct(folder / command[2])
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_the_walk(tmp_path):
    blocks = BLOCK.findall(TUTORIAL.read_text(encoding="utf-8"))
    (tmp_path / "town.tsv").write_text(next(text for kind, text in blocks if kind == "tsv"), encoding="utf-8")
    commands = [text for kind, text in blocks if kind == "sh"]
    assert len(commands) == 7
    for (kind, text), (_, shown) in pairwise(blocks):
        if kind != "sh":
            continue
        command = shlex.split(text)
        assert command[0] == "rulewright"
        if command[1] == "serve":
            serve(command, tmp_path)
            assert shown.strip() in (tmp_path / "town.rules").read_text(), "how a rule that is off looks in the file"
        else:
            assert said(run(command, tmp_path)) == said(shown)
    ranks = [line.split("\t") for line in (tmp_path / "ranks.tsv").read_text().splitlines()]
    assert ["married_to", "forward", "hana", "gus", "9", "2", "13", "0"] in [row[:8] for row in ranks]
    complete = (tmp_path / "complete.tsv").read_text().splitlines()
    known = (tmp_path / "town.tsv").read_text().splitlines()
    assert sorted(complete) == sorted([*known, "dora\tmarried_to\tcid", "gus\tmarried_to\thana"])
    assert (tmp_path / "town.rules.1").exists()
