"""What becomes of messy files: python benchmarks/messy_files.py.

Each file is made, read as a user would read it, and shown with what was read of it, or the message that refused it.
To reach: nothing is misread in silence.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from measure import machine

import rulewright as rw
from rulewright.errors import RulewrightError

FAMILY = [("ann", "parent_of", "bob"), ("bob", "parent_of", "cid"), ("ann", "knows", "cid"), ("cid", "knows", "ann")]
MILLIONS = 2_000_000


def lines(*rows: tuple[str, ...], delimiter: str = ",", end: str = "\n") -> str:
    return "".join(delimiter.join(row) + end for row in rows)


@dataclass(frozen=True)
class Messy:
    """Files by name (one of them is read, or the folder of several), and the options of reading them."""

    what: str
    files: Mapping[str, str | bytes]
    columns: str | None = None
    format: str | None = None

    def write(self, folder: Path) -> Path:
        """Make the files, and return what is to be read."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder / next(iter(self.files)) if len(self.files) == 1 else folder

    def read(self, folder: Path) -> rw.KnowledgeBase:
        """Make the files and read them."""
        columns = None if self.columns is None else self.columns.split(",")
        return rw.read_facts(self.write(folder), format=self.format, columns=columns)


SCORED = lines(("subject", "predicate", "object", "confidence", "source"), *((*row, "0.9", "file 1") for row in FAMILY))
LEADING_ID = lines(("id", "subject", "predicate", "object"), *((f"f{i}", *row) for i, row in enumerate(FAMILY)))
UNCLEAR = lines(("id", "who", "does", "whom"), *((f"f{i}", *row) for i, row in enumerate(FAMILY)))
UNKNOWN_WORDS = lines(("who", "does", "whom"), *[(f"p{i}", "likes", f"p{i + 1}") for i in range(20)])
AGES = lines(*FAMILY, *((f"p{i}", "age", str(20 + i)) for i in range(8)))
DIGITS = lines(*((str(i), "next", str(i + 1)) for i in range(20)))
PACKED = gzip.compress(lines(*FAMILY, delimiter="\t").encode())
BORN = lines(*FAMILY, *((f"p{i}", "born", f"19{50 + i}-07-02") for i in range(8)))

NODES = (
    "id:ID(Person),name,age:int,retired:boolean,home:point,:LABEL\n1,Ann,71,true,,Person\n2,Bob,42,false,,Person;Boss\n"
)
LINKS = ":START_ID(Person),role,:END_ID(Person),:TYPE\n1,friend,2,KNOWS\n"
PEOPLE = "id,age,city,retired,born\nann,71,bonn,true,1950-07-02\nbob,42,,false,1979-01-01\n"

MESSY = {
    "relationships of Neo4j": Messy("ids in a file without nodes", {"knows.csv": LINKS}),
    "an export of Neo4j": Messy("a folder of nodes and relationships", {"people.csv": NODES, "links.csv": LINKS}),
    "a wide table": Messy("a row for each person", {"people.csv": PEOPLE}),
    "a wide table, said so": Messy("the same, with --from table", {"people.csv": PEOPLE}, format="table"),
    "scores and a source": Messy("header names the columns, two more", {"a.csv": SCORED}),
    "a leading id": Messy("header names the columns, not in the first place", {"a.csv": LEADING_ID}),
    "reordered": Messy("object, subject, predicate", {"a.tsv": "object\tsubject\tpredicate\nbob\tann\tparent_of\n"}),
    "an unclear header": Messy("id, who, does, whom", {"a.csv": UNCLEAR}),
    "an unclear header, in order": Messy("with --columns", {"a.csv": UNCLEAR}, columns="_,head,relation,tail"),
    "an unclear header, by name": Messy(
        "with --columns", {"a.csv": UNCLEAR}, columns="tail=whom,head=who,relation=does"
    ),
    "an edge list": Messy("no column for the relation", {"a.csv": "source,target,weight\nann,bob,0.5\nbob,cid,0.5\n"}),
    "words nobody knows": Messy("a header that only stands out", {"a.csv": UNKNOWN_WORDS}),
    "a header twice": Messy("two files put together", {"a.csv": (lines(("head", "relation", "tail"), *FAMILY)) * 2}),
    "what apply writes": Messy(
        "with scores and rules", {"new.tsv": "head\trelation\ttail\tscore\trules\nann\tknows\tbob\t0.9\t3\n"}
    ),
    "a folder with more": Messy(
        "facts and dictionaries beside the splits",
        {
            "train.tsv": lines(*FAMILY[:2], delimiter="\t"),
            "test.tsv": lines(FAMILY[2], delimiter="\t"),
            "facts.tsv": lines(FAMILY[3], delimiter="\t"),
            "entities.dict": "0\tann\n",
            "README.md": "about",
        },
    ),
    "Latin-1": Messy("not UTF-8", {"a.tsv": "ann\tknows\tbob\nann\tknows\tJosé\n".encode("latin-1")}),
    "a byte-order mark": Messy("UTF-8 as Windows has it", {"a.csv": SCORED.encode("utf-8-sig")}),
    "UTF-16": Messy("as a spreadsheet saves it", {"a.txt": lines(*FAMILY, delimiter="\t").encode("utf-16")}),
    "CRLF": Messy("lines of Windows", {"a.csv": lines(*FAMILY, end="\r\n")}),
    "CR": Messy("lines of old Macs", {"a.tsv": lines(*FAMILY, delimiter="\t", end="\r")}),
    "quoted commas": Messy("and quoted quotes", {"a.csv": 'ann,lives_in,"Paris, Texas"\n"the ""boss""",knows,ann\n'}),
    "quoted line breaks": Messy("a field of two lines", {"a.csv": 'ann,says,"one\ntwo"\nbob,says,three\n'}),
    "a tab inside": Messy("a quoted field of a CSV", {"a.csv": 'ann,says,"one\ttwo"\n'}),
    "empty columns": Messy("as spreadsheets leave them", {"a.csv": lines(*((*row, "", "") for row in FAMILY))}),
    "semicolons": Messy("a .csv of a German spreadsheet", {"a.csv": lines(*FAMILY, delimiter=";")}),
    "ragged lines": Messy("a line with a column more", {"a.tsv": "ann\tknows\tbob\nann\tknows\tbob\tcid\n"}),
    "an empty field": Messy("a fact without a tail", {"a.tsv": "ann\tknows\tbob\nann\tknows\t\n"}),
    "Windows paths": Messy("backslashes and blanks", {"a.tsv": "C:\\new\\table\tin\tD:\\My Files\n"}),
    "gzip by content": Messy("compressed, and not named so", {"a.tsv": PACKED}),
    "quotes in a TSV": Messy("as R writes it", {"a.tsv": '"subject"\t"predicate"\t"object"\n"ann"\t"knows"\t"bob"\n'}),
    "blanks after commas": Messy("names that begin with a blank", {"a.csv": "ann, knows, bob\nbob, knows, cid\n"}),
    "a picture": Messy("binary", {"a.tsv": b"\x89PNG\r\n\x1a\n\x00\x00"}),
    "blank lines": Messy("above, between and below", {"a.tsv": "\n\nann\tknows\tbob\n\nbob\tknows\tcid\n\n"}),
    "numbers as tails": Messy("ages in a file of triples", {"a.csv": AGES}),
    "numbers that are names": Messy("the same, with --columns", {"a.csv": AGES}, columns="head,relation,name"),
    "dates as tails": Messy("ISO 8601", {"a.csv": BORN}),
    "numeric ids": Messy("all names are digits", {"a.csv": DIGITS}),
}
"""The files by a short name."""


def read_millions(folder: Path) -> tuple[rw.KnowledgeBase, float]:
    """Read two million lines, below a header and with a column to pass over; return the seconds of processor time."""
    path = folder / "large.csv"
    with path.open("w") as file:
        file.write("subject,predicate,object,confidence\n")
        file.writelines(f"e{i % 300_007},r{i % 31},e{i * 7919 % 299_993},0.5\n" for i in range(MILLIONS))
    start = time.process_time()
    return rw.read_facts(path), time.process_time() - start


def collect() -> Iterator[tuple[str, str, list[str]]]:
    """Yield for each file its name, what it is, and what was read or said."""
    for name, messy in MESSY.items():
        with tempfile.TemporaryDirectory() as root:
            folder = Path(root, "graph")
            folder.mkdir()
            try:
                kb = messy.read(folder)
                yield name, messy.what, [repr(kb), *kb.notes]
            except RulewrightError as error:
                yield name, messy.what, [f"refused: {error}".replace(f"{folder}/", "")]
    with tempfile.TemporaryDirectory() as root:
        kb, seconds = read_millions(Path(root))
        yield f"{MILLIONS:,} lines", f"{seconds:.1f} s of processor time", [repr(kb), *kb.notes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print the rows of a table in Markdown")
    options = parser.parse_args()
    print(machine())
    for name, what, results in collect():
        if options.markdown:
            print(f"| {name}: {what} | {'<br>'.join(results)} |".replace("_", r"\_"))
            continue
        print(f"\n{name} ({what})")
        print(*(f"    {line}" for result in results for line in textwrap.wrap(result, 112)), sep="\n")


if __name__ == "__main__":
    main()
