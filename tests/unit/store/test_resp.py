"""Wire: commands as the client library would pack them."""

from typing import Any

import pytest
from redis.connection import Encoder, PythonRespSerializer

from django_delayq.store.nodes.resp import encode, encode_evalsha

PARTS: list[Any] = ["SET", b"\x00\r\n$", "", b"", "ü", 0, -5, 2**63, "x" * 10_000]


def packed_by_the_library(*parts: Any) -> bytes:
    serializer = PythonRespSerializer(6_000, Encoder("utf-8", "strict", decode_responses=False).encode)
    return b"".join(serializer.pack(*parts))


def test_a_command_is_packed_as_the_library_packs_it() -> None:
    assert encode(*PARTS) == packed_by_the_library(*PARTS)


@pytest.mark.parametrize("fixed", [(), ("a:{0}:jobs", "a:{0}:claim_records")])
def test_a_script_s_call_is_the_command_evalsha(fixed: tuple[str, ...]) -> None:
    for _ in range(2):
        call = encode_evalsha("5ha", fixed, ["a:{0}:ready:ü"], PARTS)
        assert call == packed_by_the_library("EVALSHA", "5ha", len(fixed) + 1, *fixed, "a:{0}:ready:ü", *PARTS)


@pytest.mark.parametrize("part", [1.5, None, [1], object()])
def test_nothing_else_is_packed(part: Any) -> None:
    with pytest.raises(TypeError):
        encode("SET", part)
