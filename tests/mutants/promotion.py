"""Mutants of promotion, each with the tests of which one must fail."""

from tests.machine.planted_bugs import PlantedBug

at = PlantedBug.at
PROMOTE = "store/lua/promote.lua"
OUTAGE = "tests/integration/store/test_outage.py"

MUTANTS: dict[PlantedBug, tuple[str, ...]] = {
    at(
        "leases lapse during an outage of Redis",
        PROMOTE,
        "elseif expected and now - expected > outage then",
        "elseif false then",
    ): (OUTAGE,),
    at(
        "a lease is spared at each outage",
        PROMOTE,
        "lapsed_by, spared = spared - recovery, now + recovery",
        "lapsed_by, spared = 0, now + recovery",
    ): (OUTAGE,),
    at(
        "a clock set back spares every lease",
        PROMOTE,
        "if spared > now + recovery then spared = 0 end\n",
        "",
    ): (OUTAGE,),
    at(
        "the dispatcher oversleeps the end of the respite",
        PROMOTE,
        "math.max(tonumber(lease[2]), spared)",
        "math.max(tonumber(lease[2]), now + sweep)",
    ): (OUTAGE,),
}
