"""JSON read with its shape checked on the way: errors name the file and where in it the value stands."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from rulewright.errors import ParseError
from rulewright.files import read_text

HALF_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Json:
    """A JSON value that knows where it stands: what a reader does not find as it must be is an error with the path.

    >>> root = Json({"title": "A", "labels": [{"h": 44}]}, file="dev.json")
    >>> root["title"].text()
    'A'
    >>> root["labels"].items()[0]["h"].index(12, "entities")
    Traceback (most recent call last):
    ...
    rulewright.errors.ParseError: dev.json: labels[0].h is 44 but there are 12 entities
    """

    __slots__ = ("_name", "_parent", "_step", "file", "value")

    def __init__(
        self, value: object, *, file: str, parent: Json | None = None, step: str | int = "", name: str = ""
    ) -> None:
        self.value, self.file = value, file
        self._parent, self._step, self._name = parent, step, name

    def called(self, name: str) -> Json:
        """Return the same value, with a name of its own in what is said of it and its parts."""
        return Json(self.value, file=self.file, name=name)

    def location(self) -> str:
        """Return where the value stands, as in ``document 2 ('A'): labels[0].h``."""
        path = ""
        node = self
        while node._parent is not None and not node._name:
            path = (f"[{node._step}]" if isinstance(node._step, int) else f".{node._step}") + path
            node = node._parent
        return ": ".join(part for part in (node._name, path.removeprefix(".")) if part) or "the top level"

    def fault(self, message: str) -> ParseError:
        """Return the error that says ``message`` of this value."""
        return ParseError(f"{self.location()} {message}", file=self.file)

    def expected(self, wanted: str) -> ParseError:
        """Return the error for a value that is not ``wanted``."""
        return self.fault(f"must be {wanted}, got {describe(self.value)}")

    def __getitem__(self, key: str) -> Json:
        value = self.get(key)
        if value is None:
            keys = ", ".join(show_short(other) for other in self._object()) or "nothing"
            raise self.fault(f"has no {key!r}; it has {keys}")
        return value

    def get(self, key: str) -> Json | None:
        """Return a field of an object, None where it is absent or null."""
        value = self._object().get(key)
        return None if value is None else Json(value, file=self.file, parent=self, step=key)

    def _object(self) -> dict[str, object]:
        if not isinstance(self.value, dict):
            raise self.expected("an object")
        return self.value

    def fields(self) -> Iterator[tuple[str, Json]]:
        """Yield the fields of an object."""
        for key, value in self._object().items():
            yield key, Json(value, file=self.file, parent=self, step=show_short(key))

    def items(self, of: str = "") -> list[Json]:
        """Return the parts of a list; ``of`` says what they are."""
        if not isinstance(self.value, list):
            raise self.expected(f"a list of {of}" if of else "a list")
        return [Json(part, file=self.file, parent=self, step=position) for position, part in enumerate(self.value)]

    def optional_items(self, key: str, of: str) -> list[Json]:
        """Return the parts of a list in a field, none where the field is absent or null."""
        field = self.get(key)
        return [] if field is None else field.items(of)

    def optional_text(self, key: str) -> str | None:
        """Return the string in a field, None where it is absent or null."""
        field = self.get(key)
        return None if field is None else field.text()

    def number(self) -> float:
        """Return a number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.expected("a number")
        return self.value

    def text(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str):
            raise self.expected("a string")
        return self.value

    def texts(self) -> tuple[str, ...]:
        """Return a list of strings."""
        if isinstance(self.value, list) and all(isinstance(part, str) for part in self.value):
            return tuple(self.value)
        return tuple(part.text() for part in self.items("strings"))

    def integer(self) -> int:
        """Return a whole number."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.expected("a whole number")
        return self.value

    def integers(self, count: int | None = None) -> tuple[int, ...]:
        """Return a list of whole numbers, of a certain length where ``count`` is given."""
        values = tuple(part.integer() for part in self.items("whole numbers"))
        if count is not None and len(values) != count:
            raise self.fault(f"must hold {count} whole numbers, got {len(values)}")
        return values

    def index(self, size: int, of: str) -> int:
        """Return a whole number that counts from 0 into ``size`` things."""
        index = self.integer()
        if not 0 <= index < size:
            raise self.fault(f"is {show_short(index)} but there are {size} {of}")
        return index


def load(path: str | os.PathLike[str]) -> Json:
    """Read a JSON file; text that is not JSON is an error with its line and column."""
    return parse_json(read_text(path), file=os.fspath(path))


def parse_json(text: str, *, file: str) -> Json:
    """Read the text of one JSON value; ``file`` is named in errors."""
    if not text.strip():
        raise ParseError("the file is empty; expected JSON", file=file)

    def distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in fields if keys.count(key) > 1)
            raise ParseError(f"an object has the key {show_short(twice)} twice; keep one", file=file)
        return fields

    def refused(constant: str) -> object:
        raise ParseError(f"{constant} is no JSON number; write a finite number or null", file=file)

    try:
        value = json.loads(text, object_pairs_hook=distinct, parse_constant=refused)
        if HALF_SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ParseError(_explained(error, text), file=file, line=error.lineno, column=error.colno) from None
    except UnicodeEncodeError:
        raise ParseError("a \\u escape stands for half a character; escape both halves", file=file) from None
    except RecursionError:
        raise ParseError("lists or objects are nested too deeply", file=file) from None
    except ParseError:
        raise
    except ValueError:  # more digits than Python converts
        raise ParseError("a number has too many digits", file=file) from None
    return Json(value, file=file)


def _explained(error: json.JSONDecodeError, text: str) -> str:
    if error.msg == "Extra data":
        return "more text after the JSON value; a file holds one value (join the lines of JSON Lines into a list)"
    if error.pos >= len(text.rstrip()):
        return "the JSON ends too early; is the file complete?"
    return f"not JSON: {error.msg[0].lower()}{error.msg[1:]}, got {text[error.pos : error.pos + 10]!r}"


def dump_records(records: list[dict[str, object]]) -> str:
    r"""Return the JSON text of a list with one record to a line.

    >>> dump_records([{"title": "A"}, {"title": "Ö"}])
    '[\n{"title": "A"},\n{"title": "Ö"}\n]\n'
    """
    lines = ",\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    return f"[\n{lines}\n]\n" if records else "[]\n"


def describe(value: object) -> str:
    """Say in a few words what a JSON value is.

    >>> [describe(value) for value in ({"a": 1}, [1, 2], "text", 3.5, True, None)]
    ['an object', 'a list', "the string 'text'", 'the number 3.5', 'true', 'null']
    """
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return f"the {'string' if isinstance(value, str) else 'number'} {show_short(value)}"


def show_short(value: object, *, width: int = 60) -> str:
    """Show a value on one line of limited width."""
    shown = repr(value)
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"
