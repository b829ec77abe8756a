from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

SLOW_RULE = "q(A, F) :- p(A, B), p(C, B), p(C, D), p(E, D), p(E, F), p(G, F), A != G.\n"
SOON = 20.0
"""Seconds within which a command has ended on a machine with much other work; undisturbed they take many times that."""


@pytest.fixture
def folder(tmp_path):
    chance = random.Random(0)
    lines = {f"n{chance.randrange(300)}\tp\tn{chance.randrange(300)}" for _ in range(9000)}
    (tmp_path / "dense.tsv").write_text("".join(f"{line}\n" for line in sorted(lines)))
    (tmp_path / "slow.rules").write_text(SLOW_RULE)
    (tmp_path / "out.tsv").write_text("kept")
    (tmp_path / "out.rules").write_text("kept")
    return tmp_path


def interrupt(command: list[str], folder, after: float) -> tuple[int, float, str]:
    """Start a command, send it what Ctrl-C sends, and return its exit code, how long it took to end, and its errors."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(after)
        assert process.poll() is None, "it ended before it could be interrupted"
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        return process.returncode, time.monotonic() - sent, errors
    finally:
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ["apply", "slow.rules", "dense.tsv", "-o", "out.tsv"],
        ["explain", "q(n1, n2)", "slow.rules", "dense.tsv", "--all"],
        ["learn", "dense.tsv", "--max-length", "4", "-o", "out.rules"],
        ["learn", "dense.tsv", "--learner", "nlil", "-o", "out.rules"],
    ],
)
def test_ctrl_c_ends_every_command_soon_and_leaves_its_output_alone(folder, args):
    code, seconds, errors = interrupt([sys.executable, "-m", "rulewright", *args], folder, after=4)
    assert code == 130
    assert seconds < SOON
    assert errors.splitlines()[-1] == "rulewright: interrupted"
    assert "Traceback" not in errors and errors.count("interrupted") == 1
    assert (folder / "out.tsv").read_text() == (folder / "out.rules").read_text() == "kept"
    assert sorted(file.name for file in folder.iterdir()) == ["dense.tsv", "out.rules", "out.tsv", "slow.rules"]


@pytest.mark.slow
def test_ctrl_c_ends_reading(folder):
    with (folder / "large.tsv").open("w") as file:
        for first in range(200):
            file.writelines(f"n{first * 10_000 + second}\tp\tn{second}\n" for second in range(10_000))
    command = [sys.executable, "-m", "rulewright", "convert", "large.tsv", "out.facts"]
    code, seconds, errors = interrupt(command, folder, after=1.5)
    assert (code, errors) == (130, "rulewright: interrupted\n")
    assert seconds < SOON
    assert not (folder / "out.facts").exists()


def test_ctrl_c_ends_a_command_whose_library_does_not_listen(folder):
    waits = (
        "import hashlib, rulewright.cli as cli\n"
        "cli.app = lambda: hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)\n"  # one call into C
        "cli.main()\n"
    )
    code, seconds, errors = interrupt([sys.executable, "-c", waits], folder, after=2)
    assert (code, errors) == (130, "rulewright: interrupted\n")
    assert seconds < SOON
