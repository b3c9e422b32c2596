"""Mutants of admin, each with the tests of which one must fail."""

from tests.machine.planted_bugs import PlantedBug

at = PlantedBug.at

BOUNDS = "tests/admin/test_bounds.py"

MUTANTS: dict[PlantedBug, tuple[str, ...]] = {
    at(
        "an action goes on beyond what was counted and confirmed",
        "admin/carrying.py",
        "            if self.progress.handled >= self._order.count:\n                break\n",
        "",
    ): (BOUNDS,),
    at(
        "a count that was cut short is taken for the whole",
        "admin/counting.py",
        "            return order, progress\n",
        "            break\n",
    ): (BOUNDS,),
    at(
        "an action is carried out before all is counted",
        "admin/action.py",
        "return _do(visit, order, progress) if order.counted else _ask(visit, order, progress)",
        "return _do(visit, order, progress)",
    ): (BOUNDS,),
    at(
        "an action for all that match is done once more by the same form",
        "admin/orders.py",
        "        return not self.ticked\n",
        '        return "shift_us" in self.wish and not self.ticked\n',
    ): (BOUNDS,),
    at(
        "what came after the count is not told of",
        "admin/counting.py",
        "            return True\n",
        "            return False\n",
    ): (BOUNDS,),
}
