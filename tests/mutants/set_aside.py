"""Mutants of set_aside, each with the tests of which one must fail."""

from tests.machine.planted_bugs import PlantedBug

at = PlantedBug.at

MUTANTS: dict[PlantedBug, tuple[str, ...]] = {}
