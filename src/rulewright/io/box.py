"""Where something stands on a page or in an image."""

from __future__ import annotations

from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle in pixels; x grows to the right and y downwards."""

    left: int
    top: int
    right: int
    bottom: int
