"""From texts to whole numbers: an encoder's own tokeniser, of which a file is the whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from penex.installing import install
from penex.lab.ground.errors import LabError


@dataclass(frozen=True)
class Tokenizer:
    """How texts become rows of token ids.

    Attributes:
        json: the content of the encoder's tokenizer.json.
        length: the most tokens of a text, and the length of every row.
        pad: what fills a row after the text's last token.
    """

    json: str
    length: int
    pad: int

    @cached_property
    def _made(self) -> Any:
        try:
            import tokenizers
        except ImportError as error:
            raise LabError(f"Texts need the packages of penex[text]: {install('text')}.") from error
        try:
            made = tokenizers.Tokenizer.from_str(self.json)
        except Exception as error:  # it raises nothing more special
            raise LabError(f"The encoder's tokenizer.json cannot be read: {error}.") from error
        made.no_padding()
        made.no_truncation()
        return made

    def lengths(self, some: Sequence[str]) -> list[int]:
        """How many tokens each text has before it is cut, marks of start and end among them."""
        return [len(one.ids) for one in self._encoded(some, None)]

    def ids(self, some: Sequence[str]) -> Tensor:
        """The rows of texts, (N, length) int32."""
        rows = torch.full((len(some), self.length), self.pad, dtype=torch.int32)
        for row, one in zip(rows, self._encoded(some, self.length), strict=True):
            row[: len(one.ids)] = torch.tensor(one.ids, dtype=torch.int32)
        return rows

    def _encoded(self, some: Sequence[str], most: int | None) -> list[Any]:
        made = self._made
        if most is None:
            made.no_truncation()
        else:
            made.enable_truncation(most)
        found: list[Any] = made.encode_batch(list(some))
        return found
