"""``rulewright data``: the named data sets, and a look at any facts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rulewright.cli.console import dataset_names, print_json, print_line, print_table, progress
from rulewright.errors import FileError, unknown_name

app = typer.Typer(help="List, show and fetch data sets.", no_args_is_help=True, rich_markup_mode=None)


@app.command("ls")
def list_sets(json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """List the named data sets and where they are.

    Example: rulewright data ls
    """
    from rulewright.datasets import availability, catalogue

    sets = catalogue().values()
    if json:
        print_json([{"name": each.name, "title": each.title, "available": availability(each)} for each in sets])
        return
    print_table(
        ("name", "title", "size", "available"),
        [(each.name, each.title, _size(sum(file.size for file in each.files)), availability(each)) for each in sets],
    )
    print_line()
    print_line("rulewright data show NAME tells more; rulewright data get NAME fetches one")


@app.command("show")
def show(
    name: Annotated[
        str,
        typer.Argument(help="A data set's name, or a file or folder of facts, or -.", autocompletion=dataset_names),
    ],
    limit: Annotated[int, typer.Option(min=1, help="How many predicates the table shows.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show what a data set or a fact file holds.

    Example: rulewright data show umls
    """
    from rulewright import datasets
    from rulewright.io import read_facts

    named = name.partition("/")[0] in datasets.catalogue() and not Path(name).exists()
    described: dict[str, object] = {}
    if named:
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
        if part is None and entry.parts:
            kb = None
        else:
            kb = datasets.load(name) if described["available"] in ("local", "cached") else None
    elif name != "-" and not Path(name).exists():
        raise FileError(f"no file {name}, and {unknown_name('data set', name, datasets.catalogue())}")
    else:
        kb = read_facts(name)
    summary = None if kb is None else kb.summary()
    if json:
        print_json({**described, **({} if summary is None else summary.as_dict())})
        return
    for key, value in described.items():
        if value and key not in ("name",):
            print_line(f"{key:<12} {', '.join(value) if isinstance(value, list | tuple) else value}")
    if described:
        print_line()
    if summary is None:
        hint = f"rulewright data show {name}/PART" if described.get("parts") else f"rulewright data get {name}"
        print_line(f"for the figures: {hint}")
        return
    print_table(("", "count"), summary.figures())
    print_line()
    predicates = sorted(summary.predicates, key=lambda each: -each.facts)
    has_false = any(each.false_facts for each in predicates)
    columns = ("predicate", "facts", *(("observed false",) if has_false else ()))
    print_table(
        columns,
        [
            (f"{each.name}({', '.join(each.types)})", each.facts, *((each.false_facts,) if has_false else ()))
            for each in predicates[:limit]
        ],
    )
    if len(predicates) > limit:
        print_line(f"… and {len(predicates) - limit} more; --limit {len(predicates)} shows all")


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="A data set's name, such as umls or cora/S1.")],
    force: Annotated[bool, typer.Option(help="Fetch again what is there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Fetch a data set into the cache; an interrupted download goes on where it stopped.

    Example: rulewright data get umls
    """
    from rulewright import datasets

    entry, part = datasets.find(name)
    with progress(f"fetching {name}") as advance:
        folder = datasets.get(entry.name, part, progress=advance, force=force)
    if json:
        print_json({"name": name, "folder": str(folder)})
    else:
        print_line(f"{name} is in {folder}")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.0f} kB"
