"""The grammar's parser and the tables that it runs on. Computing the tables takes forty times as long as reading them.

`python -m argus.frontend.tables` computes the tables again after a change of the grammar or for another release of
lark. Tables of another grammar or release are ignored, and the parser is then made from the grammar.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import lark
from lark import Lark
from lark.grammar import Rule
from lark.indenter import Indenter
from lark.lexer import TerminalDef

from argus.written import write_whole

PATH = Path(__file__).with_name("grammar.json")


class _Indenter(Indenter):
    NL_type = "_NEWLINE"
    OPEN_PAREN_types: ClassVar[list[str]] = ["LPAR", "LSQB"]
    CLOSE_PAREN_types: ClassVar[list[str]] = ["RPAR", "RSQB"]
    INDENT_type = "_INDENT"
    DEDENT_type = "_DEDENT"
    tab_len = 1


def made_of(grammar: str) -> Lark:
    """Return the parser of a grammar's text."""
    return Lark(
        grammar,
        parser="lalr",
        lexer="basic",  # A contextual lexer would read names as keywords where no keyword may stand.
        start=["function", "constant"],
        postlex=_Indenter(),
        propagate_positions=True,
        maybe_placeholders=True,
    )


def load(grammar: str, path: Path = PATH) -> Lark | None:
    """Load the parser of `grammar` from its tables. Return None if the tables are missing, damaged, or made from
    another grammar."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["identity"] != identity(grammar):
            return None
        table = found["data"]["parser"]["parser"]
        table["tokens"] = _numbered(table["tokens"])
        table["states"] = {int(state): _numbered(actions) for state, actions in table["states"].items()}
        memo = _numbered(found["memo"])
        parser: Lark = Lark._load_from_dict(found["data"], memo, postlex=_Indenter())  # type: ignore[no-untyped-call]
        return parser
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def save(parser: Lark, grammar: str, path: Path = PATH) -> None:
    """Write the tables of the parser for `grammar`. Raises OSError."""
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    data["options"]["postlex"] = None  # This option is an object; the reader of the tables passes it again.
    content = {"identity": identity(grammar), "data": data, "memo": memo}
    write_whole(path, f"{json.dumps(content, indent=None, separators=(',', ':'))}\n".encode(), mode=0o644)


def identity(grammar: str) -> list[str]:
    """Return the key for which tables are valid: the release of lark that made them, and a digest of the grammar."""
    return [lark.__version__, sha256(grammar.encode()).hexdigest()]


def _numbered(table: dict[str, Any]) -> dict[int, Any]:
    """Convert keys from text back to numbers, because JSON writes all keys as text."""
    return {int(key): value for key, value in table.items()}


def main() -> None:
    """Generate the tables of the grammar in this folder."""
    grammar = PATH.with_suffix(".lark").read_text(encoding="utf-8")
    save(made_of(grammar), grammar)


if __name__ == "__main__":
    main()
