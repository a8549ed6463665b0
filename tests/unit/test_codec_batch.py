"""Times, ids and whole batches on their way into rows (CONTRACT.md section 2, rules 5 and 6; section 3, rule 8)."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pytest

from hermes_state.codec import PLACE, encode_batch
from tests.support.encoding import LIMIT, NOW, batch, column, refusal

NAIVE = dt.datetime(2026, 1, 1)  # noqa: DTZ001 - the naive one is the case
TOKYO = dt.timezone(dt.timedelta(hours=9))


class NoOffset(dt.tzinfo):
    """A time zone that does not know its offset: such a datetime is naive."""

    def utcoffset(self, _when: dt.datetime | None) -> None:
        return None

    dst = utcoffset

    def tzname(self, _when: dt.datetime | None) -> str:
        return "?"


def times(*given: float | None, clock: float = NOW) -> list[float]:
    encoded = batch(*({"role": "user", "timestamp": time} for time in given), clock=clock)
    return [message.values[PLACE["timestamp"]] for message in encoded]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(0, 0.0), (1, 1.0), (-0.0, 0.0), (NOW, NOW), (7_258_118_399.5, 7_258_118_399.5),
     (NAIVE, 1_767_225_600.0), (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), 1_767_225_600.0),
     (dt.datetime(2026, 1, 1, 9, tzinfo=TOKYO), 1_767_225_600.0), (dt.datetime(2026, 1, 1, tzinfo=NoOffset()), 1_767_225_600.0),
     (dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC), 0.000001)],
)  # fmt: skip
def test_times_are_epoch_seconds_as_double(
    given: Any, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    stored = column("timestamp", timestamp=given)
    assert (repr(stored), type(stored)) == (repr(seconds), float)


@pytest.mark.parametrize(
    "value",
    [True, False, "1790000000", -1, -1e-9, 1e300, pytest.param(10**5000, id="huge"), float("inf"), float("nan"), 7_258_118_400, [1],
     dt.date(2026, 1, 1), dt.datetime(1969, 12, 31, tzinfo=dt.UTC), dt.datetime(2200, 1, 1, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, tzinfo=TOKYO), 1j],
)  # fmt: skip
def test_unusable_times_are_refused(value: Any) -> None:
    assert refusal(timestamp=value).field == "timestamp"


@pytest.mark.parametrize("clock", [NOW, 0.0, 1e9, 2**31 + 0.9999999, 7e9])
def test_default_times_lie_at_least_a_microsecond_apart(clock: float) -> None:
    found = times(*[None] * 500, clock=clock)
    assert found[0] == clock
    assert all(later - earlier >= 1e-6 for earlier, later in itertools.pairwise(found))
    assert found[-1] - found[0] < 1e-3 * 2


def test_a_default_follows_the_row_before_it_and_given_times_stay() -> None:
    first, second, third, fourth = times(NOW + 100, None, 5.0, None)
    assert (first, third, fourth) == (NOW + 100, 5.0, NOW)
    assert 1e-6 <= second - first < 1e-5


def test_the_clock_is_read_once_and_not_for_an_empty_batch() -> None:
    readings = iter([NOW])
    for messages in ([], [{"role": "user"}] * 3):
        encode_batch(messages, session_id="s", max_text_bytes=LIMIT, clock=lambda: next(readings))
    assert list(readings) == []


def test_missing_uids_are_made_and_differ() -> None:
    found = {message.values[PLACE["message_uid"]] for message in batch(*[{"role": "user"}] * 100)}
    assert len(found) == 100
    assert all(len(uid) == 32 and int(uid, 16) >= 0 for uid in found)


@pytest.mark.parametrize(
    ("keys", "uid"),
    [({"message_uid": "u"}, "u"), ({"_message_uid": "p"}, "p"), ({"message_uid": "u", "_message_uid": "p"}, "u"),
     ({"message_uid": None, "_message_uid": "p"}, "p"), ({"_message_uid": ""}, None), ({"_message_uid": 5}, None)],
)  # fmt: skip
def test_the_private_uid_is_used_when_the_message_has_none(keys: dict[str, Any], uid: str | None) -> None:
    assert column("message_uid", **keys) == uid


@pytest.mark.parametrize("key", ["message_uid", "platform_message_id", "message_id"])
@pytest.mark.parametrize(
    "value",
    ["", "x" * 513, "a\0", "\ud800", 1.5, True, ["x"], b"x", pytest.param(10**5000, id="huge"), -(10**512)],
)
def test_unusable_ids_are_refused(key: str, value: Any) -> None:
    assert refusal(**{key: value}).field == key


@pytest.mark.parametrize("key", ["platform_message_id", "message_id"])
@pytest.mark.parametrize(
    ("given", "stored"), [("p", "p"), (12345, "12345"), (-100123, "-100123"), (0, "0"), (None, None)]
)
def test_platform_ids_are_text_or_whole_numbers(key: str, given: Any, stored: Any) -> None:
    assert column("platform_message_id", **{key: given}) == stored


@pytest.mark.parametrize(
    ("alias", "platform", "accepted"),
    [("p", "p", True), (7, "7", True), ("p", None, True), ("p", "q", False)],
)
def test_the_alias_must_agree(alias: Any, platform: Any, accepted: bool) -> None:
    keys = {"message_id": alias, "platform_message_id": platform}
    if accepted:
        assert column("platform_message_id", **keys) == str(alias)
    else:
        assert refusal(**keys).field == "platform_message_id"


@pytest.mark.parametrize(
    ("given", "stored"), [(True, True), (False, False), (1, True), (0, False), (None, False)]
)
def test_observed_is_true_or_false(given: Any, stored: bool) -> None:
    assert column("observed", observed=given) is stored


@pytest.mark.parametrize("value", [2, -1, 1.0, "true", []])
def test_other_values_of_observed_are_refused(value: Any) -> None:
    assert refusal(observed=value).field == "observed"


@pytest.mark.parametrize(
    ("value", "fits"),
    [(0, True), (2**63 - 1, True), (2**63, False), (-1, False), (True, False), ("5", False), (1.0, False)],
)
def test_token_counts_are_whole_numbers_of_64_bits(value: Any, fits: bool) -> None:
    if fits:
        assert column("token_count", token_count=value) == value
    else:
        assert refusal(token_count=value).field == "token_count"
