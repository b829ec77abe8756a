"""How long the explorer's pages take on a large graph: python benchmarks/explorer.py [--data FOLDER] [--browser].

Rules of up to two steps are mined from fb15k237, the explorer is started on them, and once it has applied them every
page is asked for many times, about different rules and entities. A page without any work stands beside them. With
--browser the times are those until Chromium shows the page. The processor time of the server does not depend on what
else the machine does. To reach: every page well under a second.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from measure import machine, print_table, save

import rulewright as rw
from rulewright.logic import quote

REPEATS = 30


@contextmanager
def served(rules: Path, facts: Path) -> Iterator[tuple[str, int]]:
    """Start the explorer and wait until the rules are applied; yield its address and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "rulewright", "serve", str(rules), str(facts), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                page = urllib.request.urlopen(address + "/ask", timeout=60).read().decode()
                if "inferred" in page.partition("facts")[2][:200] and "applying rules" not in page:
                    break
            except OSError:
                assert process.poll() is None, "the explorer stopped"
            time.sleep(0.5)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def pages(rules: rw.RuleSet, kb: rw.KnowledgeBase, seed: int) -> dict[str, list[str]]:
    """Return addresses of each kind of page."""
    chance = random.Random(seed)
    names = list(kb.predicates)
    entity = next(iter(kb.domains.values()))
    labels = [str(label) for label in entity.labels]

    def ask(pattern: str) -> str:
        return "/ask?" + urllib.parse.urlencode({"q": pattern})

    facts = [(name, kb.tuples(name)) for name in chance.sample(names, REPEATS)]
    known = [(name, chance.choice(rows)) for name, rows in facts if rows]
    return {
        "a page without work": ["/ask"] * REPEATS,
        "rules, in order of support": ["/?sort=support&down=true"] * REPEATS,
        "rules, a search": [f"/?q={urllib.parse.quote(name.split('/')[-1])}" for name in chance.sample(names, REPEATS)],
        "a rule and its cases": [f"/rule/{chance.randrange(len(rules))}" for _ in range(REPEATS)],
        "an entity": [f"/graph?entity={chance.randrange(len(labels))}" for _ in range(REPEATS)],
        "the busiest entity": ["/graph"] * REPEATS,
        "a pattern with one name": [ask(f"{quote(name)}({quote(str(args[0]))}, X)") for name, args in known],
        "a pattern without names": [ask(f"{quote(name)}(X, Y)") for name, _ in known],
        "proofs of a fact": [
            ask(f"{quote(name)}({', '.join(quote(str(arg)) for arg in args)})") for name, args in known
        ],
    }


def cpu_seconds(process: int) -> float:
    """Return the processor time that a process has used; unlike the clock it does not count what others do."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed(addresses: list[str], load: Callable[[str], object]) -> list[float]:
    times = []
    for address in addresses:
        start = time.perf_counter()
        load(address)
        times.append(1000 * (time.perf_counter() - start))
    return times


@contextmanager
def loader(browser: bool) -> Iterator[Callable[[str], object]]:
    if not browser:
        yield lambda address: urllib.request.urlopen(address, timeout=60).read()
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = chromium.new_page()

        def load(address: str) -> None:
            page.goto(address, wait_until="commit")
            page.wait_for_selector(".rw-main > *")

        yield load
        chromium.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("RULEWRIGHT_DATA", "../shared/data"), "kbc", "fb15k237")
    parser.add_argument("--data", type=Path, default=default, help="the graph")
    parser.add_argument("--rules", type=Path, help="rules to use in place of mining them")
    parser.add_argument("--browser", action="store_true", help="time until Chromium shows the page")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", metavar="FILE", help="write the table as JSON")
    options = parser.parse_args()
    kb = rw.read_facts(options.data)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mined.rules")
        if options.rules is None:
            rw.RuleMiner(max_length=2, min_confidence=0.1, min_support=10).fit(kb).rules_.save(file)
        else:
            shutil.copy(options.rules, file)
        rules = rw.read_rules(file)
        rows = []
        with served(file, options.data) as (address, process), loader(options.browser) as load:
            for name, paths in pages(rules, kb, options.seed).items():
                load(address + paths[0])
                before = cpu_seconds(process)
                times = timed([address + path for path in paths], load)
                cpu = 1000 * (cpu_seconds(process) - before) / len(times)
                rows.append((name, len(times), cpu, float(np.median(times)), float(np.quantile(times, 0.95))))
    print(machine())
    what = "until Chromium shows it" if options.browser else "answer of the server"
    title = f"{options.data.name}, {kb.n_facts:,} facts, {len(rules):,} rules: {what}, ms"
    print_table(title, ("page", "times", "server CPU", "median", "95 %"), rows)
    save(options.save)


if __name__ == "__main__":
    main()
