"""Mutants of promotion, each with the tests of which one must fail."""

from tests.machine.planted_bugs import PlantedBug

at = PlantedBug.at
PROMOTE = "store/lua/promote.lua"
OUTAGE = "tests/integration/store/test_outage.py"
DEAD = "tests/integration/store/test_dead_limits.py"

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
    at(
        "dead letters beyond a limit wait for the next sweep",
        PROMOTE,
        "trims_left and now or now + sweep",
        "now + sweep",
    ): (DEAD,),
    at("the bytes of dead letters are not bound", PROMOTE, " or bytes > dead_limit", ""): (DEAD,),
    at("one step drops any number of bytes", PROMOTE, "freed + size > LETTERS_BYTES", "false"): (DEAD,),
    at("dropped dead letters stay counted", PROMOTE, "  add_dead_bytes(dead_bytes, -freed)\n", ""): (DEAD,),
    at(
        "discarded dead letters stay counted",
        "store/lua/discard.lua",
        "add_dead_bytes(dead_bytes, -size)\n",
        "",
    ): (DEAD,),
    at(
        "a wrong sum of bytes is told and not mended",
        "store/lua/audit_bytes.lua",
        "add_dead_bytes(dead_bytes, counted - sum_of(dead_bytes))\n",
        "",
    ): (DEAD,),
}
