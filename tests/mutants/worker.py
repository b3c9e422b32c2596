"""Mutants of worker, each with the tests of which one must fail."""

from tests.machine.planted_bugs import PlantedBug

at = PlantedBug.at

MUTANTS: dict[PlantedBug, tuple[str, ...]] = {
    at(
        "a bell that a full worker heard is lost",
        "served.py",
        "            if bell and not wanted:\n                self.pass_on()\n",
        "",
    ): ("tests/integration/store/test_served.py",),
}
