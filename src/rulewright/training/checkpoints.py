"""Checkpoints: weights as safetensors, the state as JSON, the optimizer as tensors; one step replaces the last."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from rulewright.errors import FileError, ParseError
from rulewright.files import file_error, read_bytes, read_text, write_bytes, write_text

STATE = "state.json"


def save_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write the weights of a model as safetensors."""
    tensors = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    write_bytes(path, safetensors.torch.save(tensors))


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Read weights into a model of the same architecture."""
    try:
        tensors = safetensors.torch.load(read_bytes(path))
    except safetensors.SafetensorError as error:
        raise ParseError(f"not a safetensors file: {error}", file=os.fspath(path)) from None
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise FileError(f"{os.fspath(path)} holds the weights of another model: {reason}") from None


class CheckpointFolder:
    """A folder with one resumable state.

    ``state.json`` names the files that belong to it and is replaced in one step after they are written, so a kill at
    any moment leaves the old state or the new one; what no state names is removed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise file_error("write", os.fspath(folder), error) from None

    def read(self) -> dict[str, Any] | None:
        """Return the state, or None where there is none yet."""
        path = self.folder / STATE
        if not path.exists():
            return None
        try:
            state = json.loads(read_text(path))
            if not isinstance(state, dict) or not isinstance(state.get("files"), dict):
                raise ValueError("it names no files")
        except ValueError as error:
            raise ParseError(f"not a training state: {error}", file=str(path)) from None
        return state

    def write(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any], *, step: int, is_best: bool
    ) -> None:
        """Make this the state to resume from; ``is_best`` also makes its weights the ones to return in the end."""
        previous = self.read()
        files: dict[str, str] = dict(previous["files"]) if previous else {}
        files |= {"weights": f"weights-{step:08}.safetensors", "optimizer": f"optimizer-{step:08}.pt"}
        if is_best:
            files["best"] = files["weights"]
        save_weights(model, self.folder / files["weights"])
        buffer = io.BytesIO()
        torch.save({"optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}, buffer)
        write_bytes(self.folder / files["optimizer"], buffer.getvalue())
        write_text(self.folder / STATE, json.dumps({**state, "files": files}, indent=1))
        for path in self.folder.iterdir():
            if path.name.lstrip(".").startswith(("weights-", "optimizer-")) and path.name not in files.values():
                path.unlink()

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Put weights, optimizer and random numbers back as they were."""
        load_weights(model, self.folder / state["files"]["weights"])
        path = self.folder / state["files"]["optimizer"]
        try:
            saved = torch.load(io.BytesIO(read_bytes(path)), weights_only=True)
            optimizer.load_state_dict(saved["optimizer"])
            torch.set_rng_state(saved["random"])
        except (pickle.UnpicklingError, RuntimeError, ValueError, KeyError, EOFError) as error:
            raise FileError(f"{path} is not the optimizer of this run: {error}") from None

    def restore_best(self, model: nn.Module, state: dict[str, Any]) -> None:
        """Load the weights with the best score, or the last where nothing was scored."""
        files = state["files"]
        load_weights(model, self.folder / files.get("best", files["weights"]))


@contextmanager
def interrupts_noted() -> Iterator[Callable[[], bool]]:
    """Note the first Ctrl-C instead of raising at once; the value tells whether there was one. The second raises.

    Outside the main thread signals cannot be caught, and nothing changes.
    """
    noted = False

    def note(signal_number: int, frame: FrameType | None) -> None:
        nonlocal noted
        if noted:
            raise KeyboardInterrupt
        noted = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: noted
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def deterministic() -> Iterator[None]:
    """Make PyTorch add in a fixed order; with several threads it otherwise sums gradients of indexing as they come."""
    enabled, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]  # set by a property
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # only costs time
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warn)
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
