"""Prompts of our own. Their length is asked for here and measured by the server, and the measured one counts."""

from __future__ import annotations

_SENTENCES = (
    "The harbour master keeps a ledger of every ship that enters the bay. ",
    "On Monday two barges brought timber from the northern mills. ",
    "A storm closed the channel on Tuesday, and the pilots waited. ",
    "By Thursday the water was calm and the cranes worked again. ",
    "Three crates were missing, so the clerk counted the cargo twice. ",
)
_TOKENS_PER_WORD = 1.3  # a usual figure for English prose with byte-pair encodings
_FIRST_ID, _IDS = 16, 200

GATE_PROMPTS = (
    "Repeat exactly: kestrel-7031-amber\nkestrel-7031-amber\nRepeat exactly: heron-2219-cobalt\n",
    "2 + 3 = 5\n4 + 4 = 8\n6 + 3 =",
    "The ledger of the harbour lists ships by name, cargo and",
)
"""Short greedy prompts whose answers are compared between baseline and treatment."""

FOLLOW_PROMPTS = {GATE_PROMPTS[0]: "heron-2219-cobalt", GATE_PROMPTS[1]: "9"}
"""Prompt → what an answer that follows it holds. Only what the baseline can do is asked of a treatment."""


def prompt_of(tokens: int) -> str:
    """Prose of about `tokens` tokens, the same every time."""
    words_wanted = max(1, round(tokens / _TOKENS_PER_WORD))
    words = " ".join(_SENTENCES).split()
    return " ".join(words[i % len(words)] for i in range(words_wanted))


def token_ids(tokens: int) -> list[int]:
    """Numbers that stand for plain text in every vocabulary seen: above the special ones, below the first thousand."""
    return [_FIRST_ID + i % _IDS for i in range(tokens)]
