"""Error group record: the bytes by which Redis knows an error group, and its label, which only Python reads."""

from hashlib import blake2b

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.errors.error_group import ErrorGroup
from django_delayq.job.security.encryption import Cipher

#: Bytes of a group, as `_dead_letters.lua` knows them: 6 of the task and the class, and 6 of the message. 6 zeros in
#: place of the message stand for all further messages, and 12 zeros for all further groups.
GROUP_SIZE, _HALF = 12, 6
_ANY_MESSAGE, OTHER_GROUPS = bytes(_HALF), bytes(GROUP_SIZE)
_PURPOSE = b"error group"


def error_group_of(task: str, attempts: AttemptHistory, cipher: Cipher) -> bytes:
    """Return the group of a job whose last attempt ended with an error, and its label, as scripts take them."""
    group = ErrorGroup.of(task, attempts)
    of_class = _half(group.task, group.error)
    return of_class + _half(group.message) + cipher.seal(of_class, _PURPOSE, group.pack())


def read_label(digest: bytes, label: bytes, cipher: Cipher) -> ErrorGroup | None:
    """Return what a group has in common; None if that is nothing, or if this process cannot read it."""
    group = ErrorGroup.unpack(cipher.try_open(digest[:_HALF], _PURPOSE, label)) if label else None
    # The label of a group of several messages has the first of them.
    return group._replace(message="") if group and digest[_HALF:] == _ANY_MESSAGE else group


def _half(*texts: str) -> bytes:
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=_HALF, person=b"error").digest()
