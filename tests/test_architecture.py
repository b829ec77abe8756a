"""The folders stand in the order of the design: each imports only from those above it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rulewright

ROOT = Path(rulewright.__file__).parent
ORDER = (
    "errors",
    "files",
    "checks",
    "interrupts",
    "lazy",
    "tables",
    "logic",
    "data",
    "io",
    "datasets",
    "engine",
    "evaluate",
    "reason",
    "training",
    "inject",
    "learn",
    "papers",
    "web",
    "cli",
)
FRONT = {"__init__", "__main__"}  # the public face and the entry point look at everything


def stage_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_stages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where things come from"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "rulewright"
                else [node.module]
            )
        found |= {name.split(".")[1] for name in names if name and name.startswith("rulewright.")}
    return found - {"__version__"}


def test_every_folder_has_its_place():
    stages = {stage_of(path) for path in ROOT.rglob("*.py")} - FRONT
    assert stages <= set(ORDER), f"not in the order of the design: {sorted(stages - set(ORDER))}"


@pytest.mark.slow
def test_imports_point_one_way():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        stage = stage_of(path)
        if stage in FRONT:
            continue
        for other in imported_stages(path):
            if ORDER.index(other) > ORDER.index(stage):
                wrong.append(f"{path.relative_to(ROOT)} imports {other}, which stands below {stage}")
    assert not wrong, "\n".join(wrong)


def test_a_wrong_import_would_be_seen(tmp_path):
    file = tmp_path / "example.py"
    file.write_text("def late():\n    from rulewright.cli import main\n    import rulewright.engine.sql\n")
    assert imported_stages(file) == {"cli", "engine"}


@pytest.mark.parametrize("module", ["torch", "duckdb", "numpy", "lark", "scipy", "rich", "typer", "sklearn"])
def test_importing_the_package_loads_nothing_heavy(module):
    code = f"import sys, rulewright; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cli", "engine", "io", "datasets", "reason", "logic"])
def test_torch_loads_only_when_used(name):
    code = f"import sys, rulewright.{name}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there():
    for name in rulewright.__all__:
        assert getattr(rulewright, name) is not None
    assert set(rulewright.__all__) <= set(dir(rulewright))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rulewright.nothing  # noqa: B018


@pytest.mark.slow
def test_class_names_are_unique():
    modules: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                modules.setdefault(node.name.lstrip("_"), []).append(str(path.relative_to(ROOT)))
    shared = {name: paths for name, paths in modules.items() if len(paths) > 1}
    assert not shared, "\n".join(f"{name}: {', '.join(paths)}" for name, paths in shared.items())
