"""The model: a toy whose greedy answer is a function of the prompt and of the activation's code.

It scores a handful of words for each position and takes the best. When the prompt asks for something it understands (to
repeat a text, to add two numbers, a capital), the words of that answer score high; else they come out of a digest.
"""

from __future__ import annotations

import hashlib
import re
import zlib

from sglang.srt.layers.activation import SiluAndMul

VOCABULARY_SIZE = 163840
TEXT = """
the a of to and in that is was for on with as by from at which this into over each one two more less than when where
while after before between through under same other long short early late first last next small large light water stone
river valley field road house door window table letter number answer question reason result measure signal channel
server memory token layer kernel graph cache model value time step rank node link moves turns holds reads writes finds
keeps gives takes shows grows falls stands opens closes follows remains
"""
WORDS = TEXT.split()
CAPITALS = {"france": "Paris", "germany": "Berlin", "italy": "Rome", "spain": "Madrid", "japan": "Tokyo"}
CANDIDATES = 6


class KimiK25ForConditionalGeneration:
    """One word a call. A word is a token."""

    def __init__(self) -> None:
        self._activation = SiluAndMul()

    def next_word(self, prompt: str, answer: list[str], position: int) -> str:
        """The word at `position`; `answer` is what `understood` made of the prompt."""
        seed = hashlib.blake2b(f"{position}\0{prompt}".encode(), digest_size=3 * CANDIDATES).digest()
        best_word, best_score = "", float("-inf")
        for n in range(CANDIDATES):
            pick, gate, up = seed[3 * n : 3 * n + 3]
            word = WORDS[pick % len(WORDS)]
            # Gates around zero and below: there the activations that one could mistake for each other differ.
            score = self._activation.forward(gate / 255 * 3.2 - 3, up / 255 * 6 - 3)
            if n == 0 and position < len(answer):
                word, score = answer[position], self._activation.forward(4.0, 4.0)
            if score > best_score:
                best_word, best_score = word, score
        return best_word


def understood(prompt: str) -> list[str]:
    """The words a sensible answer would have; empty when the prompt asks for nothing we know."""
    text = prompt.strip()
    if orders := re.findall(r"(?im)\b(?:repeat|say|echo|copy)\b[^:\n]*:\s*(.+)$", text):
        return str(orders[-1]).strip().strip("\"'`").split()
    if found := re.search(r"(?i)capital (?:city )?of (\w+)", text):
        return [CAPITALS[found[1].lower()]] if found[1].lower() in CAPITALS else []
    if found := re.search(r"(\d{1,15})\s*\+\s*(\d{1,15})\s*=?\s*\??$", text):
        return [str(int(found[1]) + int(found[2]))]
    return []


def token_id(word: str) -> int:
    return zlib.crc32(word.encode()) % VOCABULARY_SIZE
