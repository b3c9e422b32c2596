"""Tracebacks: clear the variables of a sensitive task in them."""


def clear_variables(error: BaseException) -> None:
    """Clear the variables in the tracebacks of an exception and of those behind it: reports of errors show them.

    A traceback loses its frames up to the last one that still runs, whose variables cannot be cleared.
    """
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        traceback = each.__traceback__
        while traceback is not None:
            try:
                traceback.tb_frame.clear()
            except RuntimeError:
                each.__traceback__ = traceback.tb_next
            traceback = traceback.tb_next
        left += filter(None, (each.__cause__, each.__context__))
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
