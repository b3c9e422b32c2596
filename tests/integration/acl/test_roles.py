"""A role may do all its own steps and no step of another role."""

import pytest

from django_delayq.exceptions import StoreAuthError
from django_delayq.store.maintenance.acl_roles import ROLES
from tests.integration.acl.steps import BORROWED, OWN, PAIRS, PASSWORD, STEPS, Ground


@pytest.mark.parametrize("name", ROLES)
def test_a_role_does_its_own_steps_and_is_refused_nothing(name: str, ground: Ground) -> None:
    ground.refused()
    ground.every.client.script_flush()
    for step in OWN[name].split():
        assert STEPS[step](ground.apis(name), ground.every), step
    assert ground.refused() == []


@pytest.mark.parametrize(("name", "step"), PAIRS, ids=lambda part: part)
def test_a_step_of_another_role_is_refused(name: str, step: str, ground: Ground) -> None:
    if step in BORROWED[name].split():
        assert STEPS[step](ground.apis(name), ground.every)
    else:
        with pytest.raises(StoreAuthError) as refused:
            STEPS[step](ground.apis(name), ground.every)
        assert name in str(refused.value)
        assert PASSWORD not in f"{refused.value} {refused.value!r} {refused.value.__cause__!r}"


@pytest.mark.parametrize("name", ROLES)
def test_a_role_needs_each_command_that_its_doors_send(name: str, ground: Ground) -> None:
    """Commands of scripts are read from them; a declared one must not outlive its use."""
    try:
        for command in sorted(ROLES[name].plain):
            ground.allow(name, f"-{command.lower()}")
            ground.refused()
            for step in OWN[name].split():
                try:
                    STEPS[step](ground.apis(name), ground.every)
                except StoreAuthError:
                    break
            assert ground.refused(), f"{name} does without {command}"
    finally:
        ground.allow(name, "")
