"""Merge roles whose texts are alike into one text with a role number, which halves compile time and machine code.

    tma_store(smem, 147456, c_map2, n, m);      and      tma_store(smem, 180224, c_map2, n, m + 64);
      ->   tma_store(smem, (147456 + role_number * 32768), c_map2, n, m + role_number * 64);

The texts are compared token by token. They may differ only in names of registers, which must correspond one to one, and
in numbers among the arguments of calls, which must grow by a constant step. Otherwise they are not merged. By the rules
of C++, the merged text with a role's number therefore equals that role's text, whatever it says.

For proofs, `argus/verify/reductions/alike.py` replaces such roles by one role, with fewer arrivals. This file keeps
everything that the roles say, and depends on no proof.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

NUMBER = "role_number"
"""The variable that tells roles apart: 0 for the first of them."""

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\s+|.")
_PLUS = [" ", "+", " "]
_CLOSES = ")", ",", ";"
_MOST = 2**31 - 1


class _Unlike(Exception):
    """Some texts are not alike."""


def as_one(texts: Sequence[Sequence[str]], names: Sequence[Mapping[str, str]]) -> list[str] | None:
    """Return lines that equal `texts[i]` where `NUMBER` is i; None if there are no such lines.

    `names[i]` maps names that only text i uses, its registers, to the names in the first text.
    """
    if len({len(text) for text in texts}) > 1:
        return None
    try:
        return [_line(lines, names) for lines in zip(*texts, strict=True)]
    except _Unlike:
        return None


def _line(lines: Sequence[str], names: Sequence[Mapping[str, str]]) -> str:
    tokens = [[own.get(t, t) for t in _TOKEN.findall(line)] for line, own in zip(lines, names, strict=True)]
    first = tokens[0]
    if all(other == first for other in tokens):
        return "".join(first)
    # The bounds of unrolled loops stay constants.
    if first and "".join(first).lstrip().startswith(("for ", "#", "alignas")):
        raise _Unlike
    at, made, depth = [0] * len(tokens), list[str](), 0
    while any(place < len(own) for place, own in zip(at, tokens, strict=True)):
        here = [own[place] if place < len(own) else "" for place, own in zip(at, tokens, strict=True)]
        if len(set(here)) == 1:
            depth += (here[0] in "([{") - (here[0] in ")]}") if len(here[0]) == 1 else 0
            made.append(here[0])
            at = [place + 1 for place in at]
        elif depth and not _in_brackets(made) and all(map(_is_number, here)):
            made.append(f"({here[0]} + {_grown(here)})")
            at = [place + 1 for place in at]
        elif depth and not _in_brackets(made):
            added = [_added(own, place) for place, own in zip(at, tokens, strict=True)]
            made.append(f" + {_grown(added, absent=True)}")
            at = [place + (4 if number != "0" else 0) for place, number in zip(at, added, strict=True)]
            if any(place >= len(own) or own[place] not in _CLOSES for place, own in zip(at, tokens, strict=True)):
                raise _Unlike  # The sum ends here in all texts, so no operator binds to the added number.
        else:
            raise _Unlike
    return "".join(made)


def _in_brackets(before: Sequence[str]) -> bool:
    """Return True if the next token after these is part of an index or of a template's arguments."""
    text = "".join(before)
    return text.count("[") > text.count("]") or re.search(r"\b[A-Za-z_]\w*<[^<>;()]*$", text) is not None


def _is_number(token: str) -> bool:
    return token.isdigit() and int(token) <= _MOST


def _added(own: Sequence[str], place: int) -> str:
    """Return the number that the text adds at this place; "0" if it adds none."""
    if list(own[place : place + 3]) == _PLUS and place + 3 < len(own) and _is_number(own[place + 3]):
        return own[place + 3]
    return "0"


def _grown(numbers: Sequence[str], absent: bool = False) -> str:
    """Return `NUMBER` times the constant step between the numbers. With `absent`, the first must be missing, or 0."""
    first, step = int(numbers[0]), int(numbers[1]) - int(numbers[0])
    if any(int(number) != first + step * i for i, number in enumerate(numbers)) or (absent and first) or step <= 0:
        raise _Unlike
    return f"{NUMBER} * {step}"
