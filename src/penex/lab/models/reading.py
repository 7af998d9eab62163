"""Networks that read token ids: with a head for classes, or for the features of each text."""

from typing import Any

import torch
from torch import Tensor

from penex.lab.models.layers import Cutting

_EVALUATED = 64  # texts at a time
_MULTIPLE = 8  # a batch's width is one of it: tensor cores like that


class TextNetwork(Cutting):
    """What a network says of token ids, (N, length) to (N, numbers).

    A batch is cut to its longest text: the columns after it hold nothing for any of its rows. In
    evaluation texts that are alike in length are computed together, a few at a time.

    Attributes:
        network: of the transformers library.
        pad: the id that is no token.
    """

    def __init__(self, network: Any, pad: int) -> None:
        super().__init__()
        self.network = network
        self.pad = pad

    def forward(self, ids: Tensor) -> Tensor:
        """What it says of each row."""
        if self.training or len(ids) <= _EVALUATED:
            return self._cut(ids)
        order = (ids != self.pad).sum(1).argsort(stable=True)
        found = torch.cat([self._cut(ids[some]) for some in torch.split(order, _EVALUATED)])
        return found[order.argsort()]

    def lengths(self, ids: Tensor) -> Tensor:
        """The columns up to the last token of each text."""
        columns = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        return ((ids != self.pad) * columns).amax(1)

    def _cut(self, ids: Tensor) -> Tensor:
        width = self.width
        if width is None or not self.training:
            longest = int(self.lengths(ids).amax()) if len(ids) else 0
            width = max(1, -(-longest // _MULTIPLE)) * _MULTIPLE
        ids = ids[:, :width]
        return self.said(ids, ids != self.pad)

    def said(self, ids: Tensor, tokens: Tensor) -> Tensor:
        """What the network says of ids, and where they are tokens."""
        raise NotImplementedError


class TextClassifier(TextNetwork):
    """Logits of token ids, (N, length) to (N, classes)."""

    def said(self, ids: Tensor, tokens: Tensor) -> Tensor:
        """The logits."""
        found: Tensor = self.network(input_ids=ids.long(), attention_mask=tokens.long()).logits
        return found


class TextReader(TextNetwork):
    """Features of token ids, (N, length) to (N, width): the last states' mean over the tokens."""

    def said(self, ids: Tensor, tokens: Tensor) -> Tensor:
        """The features."""
        found = self.network(input_ids=ids.long(), attention_mask=tokens.long())
        states: Tensor = found.last_hidden_state
        weights = tokens.unsqueeze(-1).to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1)
