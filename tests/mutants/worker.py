"""Mutants of worker, each with the tests of which one must fail."""

from tests.machine.planted_bugs import PlantedBug

at = PlantedBug.at

GIVEN_BACK = "tests/integration/test_given_back.py"
STARTING = "tests/unit/test_starting.py"

MUTANTS: dict[PlantedBug, tuple[str, ...]] = {
    at(
        "a process whose jobs were given back takes its time",
        "worker.py",
        "            self.given_back()\n",
        "            pass\n",
    ): (GIVEN_BACK,),
    at(
        "a process whose jobs were given back waits for its dispatcher",
        "management/commands/run_worker.py",
        "if child and shutdown.hurries:",
        "if child and shutdown.hurries and child.is_running(wait=1.0):",
    ): (GIVEN_BACK,),
    at(
        "a service that nobody stopped ends alone",
        "management/starting.py",
        "            errors.append(error)\n            stop()\n",
        "            errors.append(error)\n",
    ): (STARTING,),
    at(
        "a service that hangs is waited for though jobs were given back",
        "management/shutdown.py",
        "        self._until = monotonic() + _OTHERS\n",
        "",
    ): (STARTING, GIVEN_BACK),
    at(
        "a bell that a full worker heard is lost",
        "served.py",
        "            if bell and not wanted:\n                self.pass_on()\n",
        "",
    ): ("tests/integration/store/test_served.py",),
}
