"""Slots: where the shards lie among the 16,384 slots of a Redis Cluster.

Each shard is one slot, by its hash tag. The tags are fixed, so that jobs stay where they are when the number of shards
or of nodes changes. Clusters divide the slots evenly; 3, 6 or 12 shards lie evenly on three nodes, 6 or 12 on two, and
12 on four or six.
"""

from binascii import crc_hqx
from functools import cache
from itertools import count, product
from string import ascii_lowercase

#: The slots of a cluster.
SLOTS = 16_384
#: The order in which shards take the twelfths of the slots.
_TWELFTHS = (0, 4, 8, 2, 6, 10, 1, 5, 9, 3, 7, 11)
#: A tag is good if its slot is so near to the wanted one. Of 256 tags, one is.
_TOLERANCE = 32


def slot_of(tag: str) -> int:
    """Return the slot of a hash tag: CRC16/XMODEM, as in Redis."""
    return crc_hqx(tag.encode(), 0) % SLOTS


def slot_of_shard(shard: int) -> int:
    """Return the slot of a shard."""
    return slot_of(hash_tag(shard))


@cache
def hash_tag(shard: int) -> str:
    """Return the hash tag of a shard: its number, and letters that lead to the wanted slot."""
    wanted = _wanted_slot(shard)
    for length in count():
        for letters in product(ascii_lowercase, repeat=length):
            tag = f"{shard}{''.join(letters)}"
            if abs((slot_of(tag) - wanted + SLOTS // 2) % SLOTS - SLOTS // 2) <= _TOLERANCE:
                return tag
    raise AssertionError("unreachable: some letters lead to each slot")


def _wanted_slot(shard: int) -> int:
    # Shard 0 has the tag that it had before, without letters: most projects have no other shard. The rest lie around
    # it. Further rounds of twelve halve the space that the earlier ones left: 1/2, 1/4, 3/4, 1/8, …
    turn, twelfth = divmod(shard, len(_TWELFTHS))
    part = int(f"{turn:b}"[::-1], 2) / (1 << turn.bit_length())
    return int(slot_of("0") + (_TWELFTHS[twelfth] + part) * SLOTS / len(_TWELFTHS)) % SLOTS
