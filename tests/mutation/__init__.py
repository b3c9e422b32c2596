"""All planted bugs that tests must detect, each with the tests of which at least one must fail."""

from tests.mutation import admin, core, database, outcomes, pools, producers, promotion, queues, set_aside, worker
from tests.stateful.mutations import Mutation

MODULES = (core, admin, database, outcomes, pools, producers, promotion, queues, set_aside, worker)
MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    bug: tests for module in MODULES for bug, tests in module.MUTATIONS.items()
}
