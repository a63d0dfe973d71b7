"""One line for an exception, for people who have not seen its traceback: what happened, and the first cause of it."""

from __future__ import annotations

import re
import traceback
from typing import Optional

_TRACEBACK = "Traceback (most recent call last):"
_CAUSED = "The above exception was the direct cause of the following exception:"
_DURING = "During handling of the above exception, another exception occurred:"

# Where a line is too long, its middle goes: it begins with the exception, and ends with the cause.
_MOST_CHARACTERS, _BEGINNING = 900, 300


def headline(value: BaseException) -> str:
    """Return the exception in one line of at most 900 characters, with the cause at the bottom of its chain.

    An exception of another process, such as a worker of a DataLoader, comes with that process's traceback in its
    message. Only the last line of the traceback is kept: what happened there.
    """
    line = _line(value)
    cause = _line(_first_cause(value))
    if cause.startswith(line):
        line = cause
    elif cause not in line:
        line += f", caused by {cause}"
    if len(line) > _MOST_CHARACTERS:
        line = f"{line[:_BEGINNING]} … {line[_BEGINNING - _MOST_CHARACTERS + 3 :]}"
    return line


def _first_cause(value: BaseException) -> BaseException:
    seen = {id(value)}
    while value.__cause__ is not None and id(value.__cause__) not in seen:
        value = value.__cause__
        seen.add(id(value))
    return value


def _line(value: BaseException) -> str:
    if isinstance(value, SyntaxError) and value.filename:
        return f"{type(value).__name__}: {value.msg} in {value.filename}:{value.lineno}"
    text = "".join(traceback.format_exception_only(type(value), value))
    before, found, _ = text.partition(_TRACEBACK)
    if not found:
        return _joined(text)
    before = _joined(before.rstrip().removesuffix("Original"))  # PyTorch's word
    inner = _of_traceback(text)
    name, _, message = before.partition(": ")
    if inner is None:
        return before
    return f"{before} {inner}" if re.search(r"\w", message) else inner


def _of_traceback(text: str) -> Optional[str]:
    """What happened, by the traceback in a text; with the cause at the bottom of its chain."""
    chain = [_last_line(part) for part in text.rpartition(_DURING)[2].split(_CAUSED)]
    found = [line for line in chain if line]
    if not found:
        return None
    return found[-1] if found[0] in found[-1] else f"{found[-1]}, caused by {found[0]}"


def _last_line(text: str) -> str:
    """The exception below the last stack in a text, with all lines of its message."""
    stack = text.rpartition(_TRACEBACK)[2].split("\n")
    for number, line in enumerate(stack):
        if line[:1].strip() and number > 0:
            return _joined("\n".join(stack[number:]))
    return ""


def _joined(text: str) -> str:
    return " ".join(text.replace('"""', " ").split())
