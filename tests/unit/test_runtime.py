"""Runtime: one value holds clock and settings; an override lasts for its block."""

import pytest

from django_delayq import runtime
from django_delayq.testing.fake_clock import FakeClock


def test_an_override_ends_with_its_block_and_blocks_nest() -> None:
    usual, clock = runtime.current(), FakeClock(1)
    with runtime.override(clock=clock) as outer:
        with runtime.override(clean_connections=False) as inner:
            assert runtime.current() is inner
            assert (inner.clock, inner.clean_connections) == (clock, False)
        assert runtime.current() == outer and outer.clean_connections
    assert runtime.current() is usual


def test_overrides_may_end_in_any_order() -> None:
    """As blocks of several threads or coroutines do."""
    usual, clock = runtime.current(), FakeClock(1)
    first, second = runtime.override(clock=clock), runtime.override(clean_connections=False)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert (runtime.current().clock, runtime.current().clean_connections) == (usual.clock, False)
    second.__exit__(None, None, None)
    assert runtime.current() is usual


def test_an_override_ends_with_an_exception() -> None:
    usual = runtime.current()
    with pytest.raises(KeyError), runtime.override(settings={"PREFIX": "mine"}):
        raise KeyError
    assert runtime.current() is usual


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="clok"), runtime.override(clok=FakeClock()):
        pass
