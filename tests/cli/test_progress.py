"""Progress into a pipe: a line now and then, with the time left."""

from __future__ import annotations

import logging

from rulewright.cli.console import ProgressLog, progress


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_short_work_is_quiet_and_long_work_is_told(capsys):
    clock, lines = Clock(), []
    report = ProgressLog(show=lines.append, clock=clock)
    for done in range(5):
        clock.now = 100 + 2 * done
        report("ranking", done, 100)
    assert lines == []
    clock.now = 120
    report("ranking", 10, 100)
    clock.now = 130
    report("ranking", 20, 100)
    assert lines == ["ranking: 10 of 100, about 3 min left"]
    clock.now = 136
    report("ranking", 90, 100)
    assert lines[1:] == ["ranking: 90 of 100, about 4 s left"]


def test_a_stage_goes_on_with_the_count_of_the_one_before():
    clock, lines = Clock(), []
    report = ProgressLog(show=lines.append, clock=clock)
    for done, relation in enumerate(("likes", "knows", "owns")):
        report(f"learning {relation}", done, 10)
        clock.now += 20
    report("learning hates", 3, 10)
    assert lines[-1] == "learning hates: 3 of 10, about 2 min left"
    clock.now += 20
    report("ranking", 0, 50)
    assert lines[-1] == "ranking: 0 of 50"
    clock.now += 20
    report("ranking", 25, 50)
    assert lines[-1] == "ranking: 25 of 50, about 20 s left"


def test_what_is_done_before_the_first_report_is_not_in_the_estimate():
    clock, lines = Clock(), []
    report = ProgressLog(show=lines.append, clock=clock)
    report("learning", 90, 100)
    clock.now += 20
    report("learning", 91, 100)
    assert lines == ["learning: 91 of 100, about 3 min left"]


def test_a_line_that_was_shown_is_not_shown_again_by_verbose(caplog):
    clock, lines = Clock(), []
    report = ProgressLog(show=lines.append, clock=clock)
    with caplog.at_level(logging.INFO, logger="rulewright.cli"):
        report("learning", 1, 4)
        clock.now += 20
        report("learning", 2, 4)
    assert [record.getMessage() for record in caplog.records] == [
        "learning: 1 of 4",
        "learning: 2 of 4, about 40 s left",
    ]
    assert [hasattr(record, "is_shown") for record in caplog.records] == [False, True]


def test_into_a_pipe_no_bar_is_drawn(capsys):
    with progress("learning") as report:
        report("learning", 1, 2)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
