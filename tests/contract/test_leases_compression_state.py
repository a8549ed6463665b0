"""Cool-downs and counters of the compactor (issue 3, item 4)."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hermes_state import InvalidArgumentError, SessionDB
from tests.support.raw import RawSql

COUNTERS = ("compression_fallback_streak", "compression_ineffective_count", "compression_overload_streak")
DEADLINE = "compression_recovery_deadline"
LARGEST = 2**63 - 1

pytestmark = pytest.mark.usefixtures("session")


def stored(raw: RawSql) -> tuple[Any, ...]:
    (row,) = raw(
        "SELECT compression_failure_cooldown_until, compression_failure_error FROM sessions WHERE id = 's'"
    )
    return row


def test_a_cooldown_is_told_with_its_rest_and_error_until_it_is_past(db: SessionDB, raw: RawSql) -> None:
    until = time.time() + 100.0
    db.record_compression_failure_cooldown("s", until, "provider overloaded")
    found = db.get_compression_failure_cooldown("s")
    assert found is not None
    assert set(found) == {"cooldown_until", "remaining_seconds", "error"}
    assert (found["cooldown_until"], found["error"]) == (until, "provider overloaded")
    assert 70 < found["remaining_seconds"] <= 100.5
    raw("UPDATE sessions SET compression_failure_cooldown_until = ?", time.time() - 1)
    assert db.get_compression_failure_cooldown("s") is None


def test_the_longer_deadline_stays_with_its_error(db: SessionDB, raw: RawSql) -> None:
    late = time.time() + 1000.0
    db.record_compression_failure_cooldown("s", late, "first")
    db.record_compression_failure_cooldown("s", late - 500, "shorter")
    assert stored(raw) == (late, "first")
    db.record_compression_failure_cooldown("s", late, "as long")
    assert stored(raw) == (late, "as long")
    db.record_compression_failure_cooldown("s", late + 500)
    assert stored(raw) == (late + 500, None)


def test_a_cleared_cooldown_is_gone_with_its_error(db: SessionDB, raw: RawSql) -> None:
    db.record_compression_failure_cooldown("s", time.time() + 100, "failed")
    db.clear_compression_failure_cooldown("s")
    assert stored(raw) == (None, None)
    assert db.get_compression_failure_cooldown("s") is None


def test_the_error_of_a_cooldown_is_cleaned_text(db: SessionDB, raw: RawSql) -> None:
    db.record_compression_failure_cooldown("s", time.time() + 100, "a\0b\ud83d")
    assert stored(raw)[1] == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("until", [math.nan, math.inf, 10**400, "soon", None, True])
def test_a_deadline_that_is_no_finite_number_is_refused(db: SessionDB, raw: RawSql, until: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="cooldown_until"):
        db.record_compression_failure_cooldown("s", until)
    assert stored(raw) == (None, None)


def test_an_error_that_is_no_text_or_too_long_is_refused(db: SessionDB, raw: RawSql) -> None:
    for error in (5, "x" * (db.max_text_bytes + 1)):
        with pytest.raises(InvalidArgumentError, match="error"):
            db.record_compression_failure_cooldown("s", time.time() + 100, error)  # type: ignore[arg-type]
    assert stored(raw) == (None, None)


def test_counters_start_at_0_and_keep_what_is_set(db: SessionDB, raw: RawSql) -> None:
    assert db.get_compression_counters("s") == {**dict.fromkeys(COUNTERS, 0), DEADLINE: None}
    for number, name in enumerate(COUNTERS, start=1):
        db.set_compression_counter("s", name, number)
    db.set_compression_counter("s", DEADLINE, 1_790_000_000.5)
    assert db.get_compression_counters("s") == {
        **dict(zip(COUNTERS, (1, 2, 3), strict=True)),
        DEADLINE: 1_790_000_000.5,
    }
    db.set_compression_counter("s", DEADLINE, None)
    assert raw.value(f"SELECT {DEADLINE} FROM sessions") is None


@pytest.mark.parametrize("name", [*COUNTERS, DEADLINE])
def test_what_is_set_is_never_below_0(db: SessionDB, raw: RawSql, name: str) -> None:
    db.set_compression_counter("s", name, -5)
    assert raw.value(f"SELECT {name} FROM sessions") == 0


@pytest.mark.parametrize("name", COUNTERS)
def test_an_increment_returns_the_new_value_never_below_0_nor_past_64_bits(
    db: SessionDB, raw: RawSql, name: str
) -> None:
    assert [db.increment_compression_counter("s", name, by) for by in (1, 4, -2, 0, -9)] == [1, 5, 3, 3, 0]
    assert db.increment_compression_counter("s", name) == 1
    assert db.increment_compression_counter("s", name, LARGEST) == LARGEST
    assert raw.value(f"SELECT {name} FROM sessions") == LARGEST
    assert db.increment_compression_counter("s", name, -LARGEST) == 0


def test_increments_of_several_threads_are_all_counted(db: SessionDB, raw: RawSql) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _n: db.increment_compression_counter("s", COUNTERS[0]), range(20)))
    assert sorted(results) == list(range(1, 21))
    assert raw.value(f"SELECT {COUNTERS[0]} FROM sessions") == 20


def test_other_names_and_values_are_refused(db: SessionDB) -> None:
    for name in ("message_count", DEADLINE, "", "id; --"):
        with pytest.raises(InvalidArgumentError, match="name"):
            db.increment_compression_counter("s", name)
    for value in (1.5, "1", None, True):
        with pytest.raises(InvalidArgumentError, match="value"):
            db.set_compression_counter("s", COUNTERS[0], value)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="by"):
        db.increment_compression_counter("s", COUNTERS[0], 2**63)
    with pytest.raises(InvalidArgumentError, match="value"):
        db.set_compression_counter("s", DEADLINE, math.inf)


@pytest.mark.parametrize("session_id", ["missing", "", "a\0b"])
def test_an_unknown_session_has_nothing_and_is_not_written(
    db: SessionDB, raw: RawSql, session_id: str
) -> None:
    before = raw("SELECT * FROM sessions")
    db.record_compression_failure_cooldown(session_id, time.time() + 100, "failed")
    db.clear_compression_failure_cooldown(session_id)
    db.set_compression_counter(session_id, COUNTERS[0], 3)
    assert db.increment_compression_counter(session_id, COUNTERS[0]) == 0
    assert db.get_compression_counters(session_id) is None
    assert db.get_compression_failure_cooldown(session_id) is None
    assert raw("SELECT * FROM sessions") == before
