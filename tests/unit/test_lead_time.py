"""Lead time: the lead of a dispatcher follows the measured lateness, within bounds."""

import random

from django_delayq.dispatcher.dispatcher import LeadTime


def test_the_first_sleep_has_no_lead():
    assert LeadTime().sleep(1_000_000) == 1.0


def test_the_lead_settles_so_that_promotions_arrive_on_time():
    lead_time, overhead_us = LeadTime(), 800
    arrivals = []
    for _ in range(500):
        # A timer that is `overhead_us` late; the lead makes up for part of it.
        late_us = overhead_us - lead_time.lead_us
        arrivals.append(late_us)
        if late_us >= 0:
            lead_time.record_late(int(late_us))
        else:
            lead_time.record_early()
    settled = arrivals[100:]
    assert sum(settled) / len(settled) < overhead_us / 3


def test_promotions_come_late_by_less_than_the_step_that_follows_an_early_one():
    lead_time, step_us, lates, drawn = LeadTime(), 100, [], random.Random(0)
    for _ in range(2_000):
        # The overhead varies. After an early promotion, the next one arrives a step later.
        late_us = drawn.uniform(500, 800) - lead_time.lead_us
        while late_us < 0:
            lead_time.record_early()
            late_us += step_us
        lead_time.record_late(int(late_us))
        lates.append(late_us)
    settled = lates[500:]
    assert sum(settled) / len(settled) < step_us


def test_an_early_arrival_shortens_the_lead():
    lead_time = LeadTime()
    for _ in range(50):
        lead_time.record_late(1_000)
    before = lead_time.lead_us
    lead_time.record_early()
    assert lead_time.lead_us < before


def test_the_lead_is_bounded_when_the_machine_is_overloaded():
    lead_time = LeadTime()
    for _ in range(10_000):
        lead_time.record_late(60_000_000)
    assert lead_time.lead_us <= 2_000


def test_a_job_due_within_the_lead_is_not_slept_for():
    lead_time = LeadTime()
    for _ in range(100):
        lead_time.record_late(2_000)
    assert lead_time.sleep(1) == 0.0
