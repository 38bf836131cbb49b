"""Knowledge about fast kernels: entries that say when they apply, and rewrites that carry them out."""

from argus.knowledge.clause import Clause, Fact, Facts
from argus.knowledge.entry import Entry
from argus.knowledge.facts import FACTS, facts_of, facts_of_profile, facts_of_shape, facts_of_text
from argus.knowledge.library import Reason, applicable, entries, entry_json, reasons, search
from argus.knowledge.rewrites import REWRITES, rewrite

__all__ = [
    "FACTS",
    "REWRITES",
    "Clause",
    "Entry",
    "Fact",
    "Facts",
    "Reason",
    "applicable",
    "entries",
    "entry_json",
    "facts_of",
    "facts_of_profile",
    "facts_of_shape",
    "facts_of_text",
    "reasons",
    "rewrite",
    "search",
]
