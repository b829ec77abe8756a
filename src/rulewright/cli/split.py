"""``rulewright split``: facts to learn from, and facts to ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rulewright.cli.console import FactColumns, FactFormat, print_json, print_line, read_facts_of, warn
from rulewright.errors import DataError, FileError


def split(
    facts: Annotated[str, typer.Argument(help="Facts: a file or folder in any known format, or -.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="Write train, valid and test into this folder.")
    ],
    holdout: Annotated[float, typer.Option(min=0, max=1, help="The share of the facts for test.")] = 0.1,
    valid: Annotated[
        float | None, typer.Option(min=0, max=1, help="The share for valid, 0 for none [default: as for test].")
    ] = None,
    predicate: Annotated[
        list[str] | None, typer.Option(help="Hold out only facts of this relation; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same split.")] = 0,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Split the facts of a graph at random, so that every entity and relation stays in train.

    Example: rulewright split graph.tsv --holdout 0.1 -o graph/
    """
    from rulewright.data import signature
    from rulewright.io import write_facts

    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise FileError(f"{output} is a file; name a folder for train, valid and test")
    present = sorted(file.name for file in folder.glob("*")) if folder.is_dir() else []
    taken = [name for name in present if name.split(".")[0] in ("train", "valid", "test")]
    if taken:
        raise FileError(f"{output} has {', '.join(taken)} already; choose another folder")
    kb = read_facts_of(facts, from_format, columns)
    if kb.splits:
        warn(f"the facts of {', '.join(kb.splits)} are left out; only those outside the splits are split")
    relations = [name for name, declaration in kb.predicates.items() if signature(declaration) == "ee"]
    for name in predicate or ():
        if name not in relations:
            kb.predicate(name)
            raise DataError(f"{name} is not a relation of two entities; these are: {', '.join(relations)}")
    if not relations:
        raise DataError("no predicate has two entities as arguments, so there is nothing to ask for")
    chosen = predicate or relations
    shares = {"test": holdout, "valid": holdout if valid is None else valid}
    if sum(shares.values()) >= 1:
        raise typer.BadParameter("the shares of test and valid leave nothing to learn from")
    total = sum(kb.count(name) for name in chosen)
    parts, rest = {}, kb
    for name, share in shares.items():
        left = sum(rest.count(relation) for relation in chosen)
        rest, parts[name] = rest.hold_out(
            min(1.0, share * total / max(1, left)), seed=seed, predicates=chosen, keep_names=True
        )
    is_graph = len(relations) == len(kb.predicates) and not kb.n_false_facts
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name, part in {"train": rest, **parts}.items():
        if name == "train" or part.n_facts:
            written[name] = folder / f"{name}{'.tsv' if is_graph else '.facts'}"
            write_facts(part, written[name])
    counts = {name: part.n_facts for name, part in {"train": rest, **parts}.items()}
    fewer = [
        f"{counts[name]:,} facts for {name} instead of {round(share * total):,}"
        for name, share in shares.items()
        if counts[name] < round(share * total)
    ]
    if fewer:
        warn(f"{', '.join(fewer)}: the others are the only ones of an entity or a relation, and stay in train")
    if not is_graph:
        others = kb.n_facts - sum(kb.count(name) for name in relations)
        warn(f"only relations are held out; {others:,} other facts stay in train, and files are written as .facts")
    if json:
        files = {name: {"file": str(path), "facts": counts[name]} for name, path in written.items()}
        print_json({"seed": seed, "files": files})
        return
    for name, path in written.items():
        print_line(f"{name:<6} {counts[name]:>10,} facts  {path}")
    print_line(f"Every entity and relation of valid and test is in train. Seed {seed}.")
