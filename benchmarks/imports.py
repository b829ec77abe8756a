"""What `import rulewright` costs, beside `import numpy`: python benchmarks/imports.py.

To reach: at most 2× numpy.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from measure import in_turns, machine, print_table, save

RUNS = 15


def importing(statement: str) -> None:
    subprocess.run([sys.executable, "-c", statement], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", metavar="FILE", help="write the table as JSON")
    options = parser.parse_args()
    statements = [
        "pass",
        "import numpy",
        "import rulewright",
        "import rulewright as rw; rw.read_rules; rw.KnowledgeBase",
    ]
    bare, *times = in_turns(RUNS, *(lambda each=each: importing(each) for each in statements))
    numpy = times[0] - bare
    rows = [
        (each, (taken - bare) * 1000, (taken - bare) / numpy) for each, taken in zip(statements[1:], times, strict=True)
    ]
    print(machine())
    print_table(f"import, best of {RUNS}, interpreter's own start taken off", ("statement", "ms", "× numpy"), rows)
    save(options.save)


if __name__ == "__main__":
    main()
