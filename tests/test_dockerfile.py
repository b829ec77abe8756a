"""The Dockerfile: its files are there, what it runs works, and it serves the explorer as an ordinary user."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def instructions() -> list[tuple[str, str]]:
    """Return each instruction with what stands behind it."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", "")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line.strip())]


def test_what_is_copied_is_there_and_not_ignored():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for word, rest in instructions():
        if word == "COPY":
            *sources, _ = shlex.split(rest)
            for source in sources:
                assert (ROOT / source).exists() and source in allowed


def test_it_installs_pinned_versions_and_known_extras():
    [install] = [rest for word, rest in instructions() if word == "RUN" and "pip install" in rest]
    assert "-c constraints.txt" in install
    extras = re.findall(r"\.\[(.*?)\]", install)[0].split(",")
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf"^{extra} = \[", declared, re.MULTILINE) for extra in extras)


def test_it_ends_as_an_ordinary_user_and_serves_where_it_says():
    words = [word for word, _ in instructions()]
    values = dict(instructions())
    assert words.index("USER") < words.index("CMD") and values["USER"] != "root"
    assert json.loads(values["ENTRYPOINT"]) == ["rulewright"]
    command = json.loads(values["CMD"])
    assert command[0] == "serve" and values["EXPOSE"] == command[command.index("--port") + 1]
    assert values["EXPOSE"] in values["HEALTHCHECK"]
    from typer.main import get_command

    from rulewright.cli import app

    serve = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    options = {option for parameter in serve.params for option in parameter.opts}
    assert all(word in options for word in command if word.startswith("--"))


@pytest.mark.slow
def test_the_example_that_it_serves_is_written(tmp_path):
    [code] = [shlex.split(rest)[2] for word, rest in instructions() if word == "RUN" and rest.startswith("python -c")]
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    command = json.loads(dict(instructions())["CMD"])
    assert all((tmp_path / name).is_file() for name in command[1:3])
