"""DelayQMixin: `self.delayq` for Django's test cases."""

from unittest import TestCase

from django_delayq.exceptions import DelayQError
from django_delayq.testing.delayq import DelayQ


class DelayQMixin:
    """Give every test of a case a queue of its own: `class SaleTests(DelayQMixin, TestCase)`.

    For SimpleTestCase, TestCase, TransactionTestCase and all that derive from them.
    """

    _delayq: DelayQ | None = None

    def setUp(self) -> None:
        """Enter the queue; the end of the test leaves it."""
        super().setUp()  # type: ignore[misc]
        assert isinstance(self, TestCase)
        self._delayq = self.enterContext(DelayQ())

    @property
    def delayq(self) -> DelayQ:
        """The queue of this test."""
        if self._delayq is None:
            raise DelayQError(
                "delayq is there from setUp() on: write DelayQMixin in front of the test case, "
                "and call super().setUp() in a setUp() of your own"
            )
        return self._delayq
