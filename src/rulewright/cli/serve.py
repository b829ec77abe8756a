"""``rulewright serve``: rules, facts and what follows from them, in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from rulewright.cli.console import FactColumns, FactFormat, print_line, warn


def serve(
    rules: Annotated[str, typer.Argument(help="The rule file; changes are saved to it, and its old versions kept.")],
    facts: Annotated[str, typer.Argument(help="Facts: a file or folder in any known format.")],
    report: Annotated[
        str | None, typer.Option(help="A saved report of a decoder or layer (JSON), for the page Injection.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than this machine reach only with a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 8765,
    rounds: Annotated[int, typer.Option(min=1, help="How many rules may be applied one after the other.")] = 1,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds that one question may take.")] = 5.0,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")] = False,
) -> None:
    """Explore rules and facts in a browser: read, correct, complete, and see why.

    Example: rulewright serve family.rules family.tsv
    """
    from rulewright.web import Explorer
    from rulewright.web.server import is_loopback, new_token, run

    explorer = Explorer(
        rules,
        facts,
        format=from_format,
        columns=columns,
        report=report,
        rounds=rounds,
        seconds=time_limit,
    )
    for note in explorer.kb.notes:
        warn(note)
    token = None if is_loopback(host) else new_token()
    shown = f"[{host}]" if ":" in host else host
    print_line(f"http://{shown}:{port}/" + ("" if token is None else f"?token={token}"))
    warn("stop with Ctrl+C")
    run(explorer, host=host, port=port, token=token, show=browser)
