"""Parameters: every kind of rule, what it lets through and what it says of the rest."""

import math
from fractions import Fraction

import numpy as np
import pytest

from rulewright.checks import (
    SHARE,
    Flag,
    MemoryLimit,
    Names,
    OneOf,
    Real,
    Whole,
    check_parameter,
    check_parameters,
    read_memory_limit,
)
from rulewright.errors import DataError


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (Whole(), [0, -3, np.int64(7), 10**400]),
        (Whole(1, 4), [1, 4, np.int8(2)]),
        (Whole(1, optional=True), [None, 1]),
        (Whole(high=3), [3, -100]),
        (Real(), [0, -2.5, np.float32(1), Fraction(1, 3), 10**400]),
        (Real(0, 1), [0, 1, 0.5]),
        (Real(0, 1, above=True, below=True), [0.5, 1e-300]),
        (Real(0, optional=True), [None, 0, 1e308]),
        (Real(high=1, below=True), [-1e308, 0.999]),
        (OneOf("skip", None, True), ["skip", None, True]),
        (Flag(), [True, False]),
        (Names(), [None, [], ["a"], ("a", "b"), {"a"}, {"a": 1}]),
        (MemoryLimit(), [None, 1, np.int64(5), "2GB", " 1.5 mib "]),
    ],
)
def test_values_that_fit(rule, values):
    for value in values:
        check_parameter("x", value, rule)


@pytest.mark.parametrize(
    ("rule", "value", "complaint"),
    [
        (Whole(), 1.0, "be a whole number"),
        (Whole(1), True, "be a whole number"),
        (Whole(1), None, "be a whole number"),
        (Whole(1, optional=True), "1", "be a whole number or None"),
        (Whole(1), 0, "be >= 1"),
        (Whole(high=3), 4, "be <= 3"),
        (Whole(1, 4), 5, "lie in 1 … 4"),
        (Whole(1, 4, optional=True), 0, "lie in 1 … 4 or None"),
        (Real(), "1", "be a number"),
        (Real(), True, "be a number"),
        (Real(), 1j, "be a number"),
        (Real(optional=True), [1], "be a number or None"),
        (Real(), math.inf, "be a finite number"),
        (Real(0), math.inf, "be a finite number"),
        (Real(high=1), -math.inf, "be a finite number"),
        (SHARE, math.nan, "lie in [0, 1]"),
        (SHARE, math.inf, "lie in [0, 1]"),
        (Real(0, optional=True), np.inf, "be a finite number or None"),
        (Real(0), -1e-300, "be >= 0"),
        (Real(0, above=True), 0, "be > 0"),
        (Real(high=0.5), 1, "be <= 0.5"),
        (Real(high=0.5, below=True), 0.5, "be < 0.5"),
        (SHARE, 1.5, "lie in [0, 1]"),
        (Real(0, 1, above=True), 0, "lie in (0, 1]"),
        (Real(0, 1, below=True, optional=True), 1, "lie in [0, 1) or None"),
        (OneOf("sum"), "mean", "be 'sum'"),
        (OneOf("sum", "mean", None), "max", "be 'sum', 'mean' or None"),
        (OneOf(True, False), 1, "be True or False"),
        (Flag(), 1, "be True or False"),
        (Flag(), None, "be True or False"),
        (Names(), b"likes", "be a name, a list of names or None"),
        (Names(), ["likes", 3], "be a name, a list of names or None"),
        (Names(), 3, "be a name, a list of names or None"),
        *(
            (MemoryLimit(), value, "be bytes or a text such as '2GB' or '500MiB'")
            for value in (0, -1, True, 1.5, "much", "2 ZB", "0", "0.5B", "-1GB", "")
        ),
    ],
)
def test_what_is_refused(rule, value, complaint):
    with pytest.raises(DataError) as error:
        check_parameter("x", value, rule)
    assert str(error.value) == f"x must {complaint}, got {value!r}"


def test_all_parameters_in_the_order_of_the_rules():
    rules = {"one": Whole(1), "two": Flag()}
    check_parameters({"one": 1, "two": False, "other": object()}, rules)
    with pytest.raises(DataError, match="one must be >= 1, got 0"):
        check_parameters({"two": "no", "one": 0}, rules)
    with pytest.raises(KeyError):
        check_parameters({"one": 1}, rules)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (None, None),
        (4096, 4096),
        ("4096", 4096),
        ("7 B", 7),
        ("1kb", 1000),
        ("2GB", 2 * 1000**3),
        ("0.5TB", 5 * 1000**4 // 10),
        ("1.5 MiB", 3 * 1024**2 // 2),
        ("1gib", 1024**3),
        ("1TiB", 1024**4),
        ("1KiB", 1024),
    ],
)
def test_memory_limits(given, size):
    assert read_memory_limit(given) == size


def test_a_memory_limit_by_another_name():
    with pytest.raises(DataError, match=r"^cache must be bytes .*, got 'lots'$"):
        read_memory_limit("lots", "cache")
    with pytest.raises(DataError, match=r"^cache must be bytes"):
        check_parameter("cache", "lots", MemoryLimit())
