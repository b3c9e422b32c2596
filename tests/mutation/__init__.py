"""All planted bugs that tests must detect, each with the tests of which at least one must fail."""

from tests.mutation import admin, claiming, core, database, outcomes, pools, producers, promotion, queues, worker
from tests.stateful.mutations.mutation import Mutation

MODULES = (core, admin, claiming, database, outcomes, pools, producers, promotion, queues, worker)
MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    bug: tests for module in MODULES for bug, tests in module.MUTATIONS.items()
}
