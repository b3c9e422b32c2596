"""Every mutant, each with the tests of which one must fail."""

from tests.mutation import admin, core, database, pools, producers, promotion, queues, set_aside, worker
from tests.stateful.mutations import PlantedBug

MODULES = (core, admin, database, pools, producers, promotion, queues, set_aside, worker)
MUTANTS: dict[PlantedBug, tuple[str, ...]] = {bug: tests for module in MODULES for bug, tests in module.MUTANTS.items()}
