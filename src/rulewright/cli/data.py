"""``rulewright data``: the named data sets, and a look at any facts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rulewright.cli.console import (
    FactColumns,
    FactFormat,
    dataset_names,
    print_json,
    print_line,
    print_table,
    progress,
    read_facts_of,
)
from rulewright.errors import FileError, unknown_name

app = typer.Typer(help="List, show and fetch data sets.", no_args_is_help=True, rich_markup_mode=None)


@app.command("ls")
def list_sets(json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """List the named data sets and where they are.

    Example: rulewright data ls
    """
    from rulewright.datasets import availability, catalogue

    rows = [(entry.name, entry.title, availability(entry), entry.files) for entry in catalogue().values()]
    if json:
        print_json([{"name": name, "title": title, "available": available} for name, title, available, _ in rows])
        return
    print_table(
        ("name", "title", "size", "available"),
        [(name, title, _size(sum(file.size for file in files)), available) for name, title, available, files in rows],
    )
    print_line()
    print_line("rulewright data show NAME says more; rulewright data get NAME fetches one")


@app.command("show")
def show(
    name: Annotated[
        str,
        typer.Argument(help="A data set's name, or a file or folder of facts, or -.", autocompletion=dataset_names),
    ],
    from_format: FactFormat = None,
    columns: FactColumns = None,
    limit: Annotated[int, typer.Option(min=1, help="How many predicates the table shows.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show what a data set or a fact file holds.

    Example: rulewright data show umls
    """
    from rulewright import datasets

    described: dict[str, object] = {}
    kb = None
    if name.partition("/")[0] in datasets.catalogue() and not Path(name).exists():
        entry, part = datasets.find(name)
        described = {
            "name": entry.name,
            "title": entry.title,
            "description": entry.description,
            "licence": entry.licence,
            "citation": entry.citation,
            "notes": entry.notes,
            "parts": list(entry.parts),
            "available": datasets.availability(entry),
        }
        if (part is not None or not entry.parts) and described["available"] in ("local", "cached"):
            kb = datasets.load(name)
    elif name != "-" and not Path(name).exists():
        raise FileError(f"no file {name}, and {unknown_name('data set', name, datasets.catalogue())}")
    else:
        kb = read_facts_of(name, from_format, columns)
    summary = None if kb is None else kb.summary()
    if json:
        print_json({**({} if summary is None else summary.as_dict()), **described})
        return
    for key, value in described.items():
        if value and key != "name":
            print_line(f"{key:<12} {', '.join(value) if isinstance(value, list | tuple) else value}")
    if described:
        print_line()
    if summary is None:
        hint = f"rulewright data show {name}/PART" if described.get("parts") else f"rulewright data get {name}"
        print_line(f"for the figures: {hint}")
        return
    print_table(("", "count"), summary.figures())
    print_line()
    predicates = sorted(summary.predicates, key=lambda predicate: -predicate.facts)
    titles = ("predicate", "facts", "observed false")
    rows = [
        (f"{predicate.name}({', '.join(predicate.types)})", predicate.facts, predicate.false_facts)
        for predicate in predicates[:limit]
    ]
    shown = 3 if any(predicate.false_facts for predicate in predicates) else 2
    print_table(titles[:shown], [row[:shown] for row in rows])
    if len(predicates) > limit:
        print_line(f"… and {len(predicates) - limit} more; --limit {len(predicates)} shows all")


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="A data set's name, such as umls or cora/S1.")],
    force: Annotated[bool, typer.Option(help="Fetch again what is there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Fetch a data set into the cache; files that are there already stay.

    Example: rulewright data get umls
    """
    from rulewright import datasets

    entry, part = datasets.find(name)
    with progress(f"fetching {name}") as report:
        folder = datasets.get(entry.name, part, progress=report, force=force)
    if json:
        print_json({"name": name, "folder": str(folder)})
    else:
        print_line(f"{name} is in {folder}")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.0f} kB"
