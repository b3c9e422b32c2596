"""Roles: each may do all its own steps and no step of another role."""

import pytest

from django_delayq.exceptions import StoreAuthError
from django_delayq.store.maintenance.acl_roles import ROLES
from tests.integration.acl.steps import BORROWED, OWN, PAIRS, PASSWORD, STEPS, RoleServer


@pytest.mark.parametrize("name", ROLES)
def test_a_role_does_its_own_steps_and_is_refused_nothing(name: str, role_server: RoleServer) -> None:
    role_server.refused()
    role_server.every.client.script_flush()
    for step in OWN[name].split():
        assert STEPS[step](role_server.apis(name), role_server.every), step
    assert role_server.refused() == []


@pytest.mark.parametrize(("name", "step"), PAIRS, ids=lambda part: part)
def test_a_step_of_another_role_is_refused(name: str, step: str, role_server: RoleServer) -> None:
    if step in BORROWED[name].split():
        assert STEPS[step](role_server.apis(name), role_server.every)
    else:
        with pytest.raises(StoreAuthError) as refused:
            STEPS[step](role_server.apis(name), role_server.every)
        assert name in str(refused.value)
        assert PASSWORD not in f"{refused.value} {refused.value!r} {refused.value.__cause__!r}"


@pytest.mark.parametrize("name", ROLES)
def test_a_role_needs_each_command_that_its_apis_send(name: str, role_server: RoleServer) -> None:
    """Commands inside scripts are read from the scripts; each other declared command must still be in use."""
    role = ROLES[name]
    try:
        for command in sorted({command for part in (role, *role.includes) for command in part.plain}):
            # Redis 6.2 takes back whole commands only.
            role_server.allow(name, f"-{command.lower().partition('|')[0]}")
            role_server.refused()
            for step in OWN[name].split():
                try:
                    STEPS[step](role_server.apis(name), role_server.every)
                except StoreAuthError:
                    break
            assert role_server.refused(), f"{name} does without {command}"
    finally:
        role_server.allow(name, "")
