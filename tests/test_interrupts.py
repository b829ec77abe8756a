from __future__ import annotations

import os
import signal
import threading
import time

import duckdb
import pytest

from rulewright.data import KnowledgeBase
from rulewright.engine import Engine
from rulewright.errors import TimeLimitError
from rulewright.interrupts import TimeBudget, run_interruptibly, time_limit
from rulewright.logic import parse_rule

HEAVY = {  # statements in which DuckDB hears a signal, late, and only at the end
    "cross product": "SELECT COUNT(*) AS n FROM range(2000000) a, range(2000000) b WHERE (a.range * b.range) % 7 = 3",
    "distinct": "SELECT COUNT(*) AS n FROM (SELECT DISTINCT (a.range * 7919) % 1000003 AS x, b.range AS y "
    "FROM range(20000) a, range(20000) b)",
}


@pytest.fixture
def engine():
    kb = KnowledgeBase.from_triples((f"n{i}", "p", f"n{j}") for i in range(30) for j in range(30))
    with Engine(kb, threads=2) as engine:
        yield engine


def still_works(engine: Engine) -> bool:
    return engine.count(parse_rule("q(X, Y) :- p(X, Y).").body) == 900


@pytest.mark.parametrize("name", HEAVY)
def test_ctrl_c_ends_a_statement_and_the_engine_goes_on(engine, name):
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        engine.run(HEAVY[name])
    assert not timer.is_alive()
    assert still_works(engine)


def test_a_time_limit_ends_the_statement_that_runs_and_refuses_the_next(engine):
    told = r"^stopped after 0\.2 s; ask for something more selective$"
    with pytest.raises(TimeLimitError, match=told), engine.time_limit(0.2):
        engine.run(HEAVY["cross product"])
    with engine.time_limit(0.01):
        time.sleep(0.02)
        with pytest.raises(TimeLimitError, match=r"stopped after 0\.01 s"):
            engine.run("SELECT 1 AS one")
    assert still_works(engine)


def test_of_limits_inside_limits_the_first_counts(engine):
    with engine.time_limit(0.1), engine.time_limit(60), pytest.raises(TimeLimitError, match=r"after 0\.1 s"):
        engine.run(HEAVY["cross product"])
    with engine.time_limit(60), pytest.raises(TimeLimitError, match=r"after 0\.1 s"), engine.time_limit(0.1):
        engine.run(HEAVY["cross product"])
    with engine.time_limit(60):
        assert still_works(engine)


def test_a_stream_that_is_stopped_leaves_no_table(engine):
    with pytest.raises(TimeLimitError), engine.time_limit(0.2):
        for _ in engine.stream("SELECT * FROM range(1000000)", 1):
            time.sleep(0.01)
    assert engine.run("SELECT COUNT(*) AS n FROM duckdb_tables() WHERE table_name LIKE 'result%'")["n"][0] == 0


def test_errors_of_the_work_are_its_own(engine):
    with pytest.raises(duckdb.ParserException), engine.time_limit(60):
        engine.run("SELECT FROM WHERE")
    with pytest.raises(ZeroDivisionError):
        run_interruptibly(lambda: 1 / 0, lambda: None)


def test_what_hears_of_an_interruption_late_is_told_again():
    told = []

    def work() -> None:
        while len(told) < 3:
            time.sleep(0.01)
        raise InterruptedError

    with pytest.raises(TimeLimitError), time_limit(0.01):
        run_interruptibly(work, lambda: told.append(1))
    assert len(told) == 3


def test_a_limit_holds_in_its_thread_only(engine):
    counted = []
    with time_limit(0):
        other = threading.Thread(target=lambda: counted.append(still_works(engine)))
        other.start()
        other.join()
        with pytest.raises(TimeLimitError):
            still_works(engine)
    assert counted == [True] and still_works(engine)
    with time_limit(None):
        assert still_works(engine)


def test_a_budget_is_shared_out_and_runs_out():
    budget = TimeBudget(0.2)
    part = budget.share(4)
    assert part.seconds is not None and 0.04 < part.seconds <= 0.05
    assert not part.is_over and part.spent < 1
    time.sleep(0.06)
    assert part.is_over and part.left == 0 and part.spent == 1
    assert not budget.is_over and 0.2 < budget.spent < 1
    endless = TimeBudget(None).share(3)
    assert (endless.seconds, endless.left, endless.spent, endless.is_over) == (None, None, 0.0, False)
