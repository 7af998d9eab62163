"""Models of transformers with a few weights; whoever imports this waits for transformers."""

from typing import Any

import torch
import transformers

from penex.integrations.transformers import attach as attach

LENGTH, WORDS, CLASSES = 6, 20, 3


def classifier() -> Any:
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(
        vocab_size=WORDS, dim=8, n_layers=1, n_heads=2, hidden_dim=8, num_labels=CLASSES,
        dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, max_position_embeddings=LENGTH,
    )  # fmt: skip
    return transformers.DistilBertForSequenceClassification(config)


def language_model(tied: bool = True) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=tied,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)
