"""The dispatcher's lead follows what is measured, and never runs away."""

from django_delayq.aim import Aim


def test_the_first_sleep_has_no_lead():
    assert Aim().sleep(1_000_000) == 1.0


def test_the_lead_settles_where_promotions_arrive_on_time():
    aim, overhead_us = Aim(), 800
    arrivals = []
    for _ in range(500):
        # A timer that is `overhead_us` late: what the lead does not cover is lateness.
        late_us = overhead_us - aim.reach_us
        arrivals.append(late_us)
        if late_us >= 0:
            aim.hit(int(late_us))
        else:
            aim.early()
    settled = arrivals[100:]
    assert sum(settled) / len(settled) < overhead_us / 3


def test_an_early_arrival_shortens_the_lead():
    aim = Aim()
    for _ in range(50):
        aim.hit(1_000)
    before = aim.reach_us
    aim.early()
    assert aim.reach_us < before


def test_the_lead_is_bounded_when_the_machine_is_overloaded():
    aim = Aim()
    for _ in range(10_000):
        aim.hit(60_000_000)
    assert aim.reach_us <= 2_000


def test_what_is_due_within_the_lead_is_not_slept_for():
    aim = Aim()
    for _ in range(100):
        aim.hit(2_000)
    assert aim.sleep(1) == 0.0
