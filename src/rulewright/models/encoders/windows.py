"""Long texts through an encoder of bounded length: overlapping windows, averaged where they overlap."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rulewright.errors import DataError


def window_bounds(length: int, *, size: int, overlap: int) -> list[tuple[int, int]]:
    """Cover ``length`` pieces by the fewest windows of at most ``size``, neighbours sharing at least ``overlap``.

    All windows are equally long and no longer than needed, since the cost grows with their length.

    >>> window_bounds(500, size=510, overlap=128)
    [(0, 500)]
    >>> window_bounds(700, size=510, overlap=128)
    [(0, 414), (286, 700)]
    """
    if not 0 <= overlap < size:
        raise DataError(f"overlap must be >= 0 and < size, got overlap={overlap}, size={size}")
    if length <= size:
        return [(0, length)]
    count = -(-(length - overlap) // (size - overlap))
    width = -(-(length + (count - 1) * overlap) // count)
    starts = [number * (length - width) // (count - 1) for number in range(count)]
    return [(start, start + width) for start in starts]


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a batch of padded texts ``[B, L]``: ``place[w, s]`` is where piece s of window w stands.

    Each window repeats the frame of its text (prefix and suffix). ``share[w, s]`` is one over the number of windows
    that hold the piece, so that a weighted sum over windows is their average; padding has share 0.
    """

    text: Tensor  # [W]
    place: Tensor  # [W, S]
    real: Tensor  # [W, S] bool
    share: Tensor  # [W, S]
    shape: tuple[int, int]

    @classmethod
    def over(
        cls,
        lengths: list[int],
        *,
        size: int,
        overlap: int,
        prefix: int,
        suffix: int,
        device: torch.device | None = None,
    ) -> Windows:
        """Lay windows of ``size`` pieces, frame included, over texts of these lengths, frame included."""
        texts, rows = [], []
        for number, length in enumerate(lengths):
            content = length - prefix - suffix
            for start, end in window_bounds(content, size=size - prefix - suffix, overlap=overlap):
                texts.append(number)
                rows.append(
                    torch.cat(
                        [
                            torch.arange(prefix),
                            torch.arange(prefix + start, prefix + end),
                            torch.arange(length - suffix, length),
                        ]
                    )
                )
        place = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
        real = place >= 0
        place = place.clamp(min=0)
        text = torch.tensor(texts)
        shape = (len(lengths), max(lengths))
        counts = torch.zeros(shape[0] * shape[1])
        counts.index_add_(0, (text[:, None] * shape[1] + place)[real], torch.ones(int(real.sum())))
        share = real / counts[text[:, None] * shape[1] + place].clamp(min=1)
        return cls(text.to(device), place.to(device), real.to(device), share.to(device), shape)

    @property
    def single(self) -> bool:
        """Whether every text is one window, which then equals the text."""
        return len(self.text) == self.shape[0]

    def cut(self, pieces: Tensor, *, padding: int = 0) -> Tensor:
        """Cut the padded pieces ``[B, L]`` into windows ``[W, S]``."""
        return torch.where(self.real, pieces[self.text[:, None], self.place], padding)

    def joined(self, states: Tensor) -> Tensor:
        """Average the states ``[W, S, d]`` of windows into those of texts ``[B, L, d]``; padding is 0."""
        if self.single:
            return states * self.real[..., None]
        batch, length = self.shape
        target = (self.text[:, None] * length + self.place).flatten()
        weighted = (states * self.share[..., None].to(states.dtype)).flatten(0, 1)
        joined = states.new_zeros(batch * length, states.shape[-1]).index_add(0, target, weighted)
        return joined.view(batch, length, -1)

    def rows(self, attention: Tensor, text: Tensor, place: Tensor) -> Tensor:
        """Average the attention ``[W, heads, S, S]`` of the pieces at ``place`` of ``text`` (both ``[M]``).

        Returns ``[M, heads, L]``; what a window does not show gets 0 from it.
        """
        windows, heads, size, _ = attention.shape
        shown = (self.text[None, :] == text[:, None])[:, :, None] & self.real & (self.place == place[:, None, None])
        mention, window, position = shown.nonzero(as_tuple=True)  # once for each window that shows the piece
        head = torch.arange(heads, device=text.device)
        row = (window[:, None] * heads + head) * size + position[:, None]
        found = attention.reshape(windows * heads * size, size).index_select(0, row.flatten())
        found = found.view(*row.shape, size)
        if self.single:
            return found
        found = found * (self.share[window, position][:, None] * self.real[window])[:, None, :].to(found.dtype)
        columns = self.place[window][:, None, :].expand_as(found)
        spread = found.new_zeros(len(mention), heads, self.shape[1]).scatter_add(2, columns, found)
        return found.new_zeros(len(text), heads, self.shape[1]).index_add(0, mention, spread)
