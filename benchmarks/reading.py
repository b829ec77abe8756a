"""How much there is to read: python benchmarks/reading.py [--src FOLDER …] [--save FILE].

Counts of the source (modules, code lines, import lines, modules that one other module imports, public names) and of
three walks through it: the distinct functions, and the files they stand in, that run between a call and what the
caller sees. Several source trees may be given, to be put side by side. To reach: 200 modules, 25,000 lines of code,
and walks half as long as they were: 171, 184 and 112 functions in 27, 25 and 15 files.

- fact → proof: a TSV and a rule are read, a fact is explained and the proof printed;
- rule → message: rules are mined from facts and a `LogicLayer` sends their messages;
- query → rank: a `PathMixture` is fitted and ranks the answers to the queries of a split.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from measure import machine, print_table, save

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def count_lines(text: str) -> tuple[int, int]:
    """Count the lines of code, without blank lines, comments and docstrings, and those of imports among them."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    imports: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code), len(imports)


def module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def count_importers(root: Path) -> dict[str, set[str]]:
    """Return for every module which others import it, wherever in them the import stands."""
    modules = {module_name(path, root): path for path in root.rglob("*.py")}
    importers: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    target = f"{node.module}.{alias.name}"
                    importers.get(target, importers.get(node.module, set())).add(name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    importers.get(alias.name, set()).add(name)
    return importers


def count_source(src: Path) -> dict[str, int]:
    """Count what there is in a source tree."""
    files = sorted((src / "rulewright").rglob("*.py"))
    modules = [path for path in files if path.name != "__init__.py"]
    lines = [count_lines(path.read_text(encoding="utf-8")) for path in files]
    importers = count_importers(src)
    script = "import rulewright; print(len(rulewright.__all__))"
    env = {**os.environ, "PYTHONPATH": str(src)}
    names = subprocess.run([sys.executable, "-c", script], env=env, check=True, capture_output=True, text=True).stdout
    return {
        "modules": len(modules),
        "lines of code": sum(code for code, _ in lines),
        "lines of imports": sum(imports for _, imports in lines),
        "modules with one importer": sum(len(importers[module_name(path, src)]) == 1 for path in modules),
        "public names": int(names),
    }


def trace(work: Callable[[], object]) -> tuple[int, int]:
    """Run something and count the functions of the package that it calls, and the files they stand in."""
    functions: dict[str, set[tuple[int, str]]] = defaultdict(set)

    def note_call(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and "/rulewright/" in code.co_filename and not code.co_name.startswith("<"):
            functions[code.co_filename].add((code.co_firstlineno, code.co_name))

    sys.setprofile(note_call)
    try:
        work()
    finally:
        sys.setprofile(None)
    return sum(map(len, functions.values())), len(functions)


def trace_walks() -> dict[str, tuple[int, int]]:
    """Count the functions and files of the three walks, everything being imported beforehand."""
    import torch

    import rulewright as rw
    from rulewright.data.generators import family
    from rulewright.evaluate.ranking import evaluate_ranking
    from rulewright.learn import PathMixture

    kb = family(60).kb
    rule = "0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z)."
    with tempfile.TemporaryDirectory() as folder:
        facts, rules = Path(folder) / "family.tsv", Path(folder) / "family.rules"
        facts.write_text("ann\tparent_of\tbob\nbob\tparent_of\tcid\n", encoding="utf-8")
        rules.write_text(rule + "\n", encoding="utf-8")

        def explain() -> str:
            return str(rw.explain(rw.read_rules(rules), rw.read_facts(facts), "grandparent_of(ann, cid)"))

        def send_messages() -> object:
            mined = rw.RuleMiner(max_length=2, min_confidence=0.9).fit(kb).rules_
            names = {str(rule.head.predicate) for rule in mined.rules}
            for rule in mined.rules:
                names |= {str(part.predicate) for part in rule.body if hasattr(part, "predicate")}
            return rw.LogicLayer(mined)({name: torch.zeros(5, 5) for name in sorted(names)})

        def rank() -> object:
            mixture = PathMixture(max_length=2, targets=["grandparent_of"]).fit(kb)
            return evaluate_ranking(mixture, kb, kb, relations=["grandparent_of"])

        walks = {"fact → proof": explain, "rule → message": send_messages, "query → rank": rank}
        for work in walks.values():
            work()  # what is imported or cached at the first call is no part of the walk
        return {name: trace(work) for name, work in walks.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).parents[1] / "src"
    parser.add_argument("--src", type=Path, nargs="+", default=[default], help="source trees to put side by side")
    parser.add_argument("--walks", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--save", metavar="FILE", help="write the tables as JSON")
    options = parser.parse_args()
    if options.walks:
        print(json.dumps(trace_walks()))
        return
    counts = [count_source(src.resolve()) for src in options.src]
    walks = []
    for src in options.src:
        env = {**os.environ, "PYTHONPATH": str(src.resolve())}
        command = [sys.executable, __file__, "--walks"]
        printed = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
        walks.append(json.loads(printed.splitlines()[-1]))
    print(machine())
    columns = [f"tree {position}" for position in range(1, len(counts) + 1)]
    print_table("The source", ("", *columns), [(name, *(tree[name] for tree in counts)) for name in counts[0]])
    rows = [(name, *(f"{tree[name][0]} in {tree[name][1]}" for tree in walks)) for name in walks[0]]
    print_table("Functions and files of a walk", ("", *columns), rows)
    save(options.save)


if __name__ == "__main__":
    main()
