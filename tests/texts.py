"""Tiny texts and a tiny encoder for the tests, in the forms of a user and of the hub."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

WORDS = [
    "the",
    "film",
    "was",
    "a",
    "good",
    "bad",
    "fine",
    "poor",
    "joy",
    "bore",
    "of",
    "and",
    "very",
    "quite",
    "story",
    "cast",
]
LENGTH = 16  # tokens of a text at most


def sentences(count: int = 40) -> list[tuple[str, str]]:
    """Different texts of two classes, told apart by a word, and their classes."""
    found = []
    for k in range(count):
        label = ("bad", "good")[k % 2]
        rest = [WORDS[(k * step + step) % len(WORDS)] for step in (3, 5, 7, 11)]
        others = [word for word in rest if word not in ("good", "bad")]
        found.append((" ".join([label, *others, f"{WORDS[k % 16]}{k}"]), label))
    return found


def write_table(path: Path, count: int = 40) -> Path:
    """A .csv file with the columns id, body and stars."""
    rows = (f'{k},"{text}",{label}' for k, (text, label) in enumerate(sentences(count)))
    path.write_text("\n".join(["id,body,stars", *rows]) + "\n")
    return path


def write_folder(root: Path, count: int = 40) -> Path:
    """A folder for each class with a file for each text."""
    for k, (text, label) in enumerate(sentences(count)):
        (root / label).mkdir(parents=True, exist_ok=True)
        (root / label / f"{k:03}.txt").write_text(f"{text}\n")
    return root


def write_encoder(folder: Path, seed: int = 0) -> Path:
    """A BERT of two layers with random weights and a vocabulary of words and digits."""
    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *(f"##{k}" for k in range(10))]
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": len(vocabulary),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": LENGTH,
        "pad_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(vocabulary)))
    save_file(_weights(len(vocabulary), seed), folder / "model.safetensors", {"format": "pt"})
    return folder


def _tokenizer(vocabulary: list[str]) -> dict[str, object]:
    special = [
        {
            "id": k,
            "content": word,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for k, word in enumerate(vocabulary[:4])
    ]
    return {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "BertProcessing",
            "sep": ["[SEP]", 3],
            "cls": ["[CLS]", 2],
        },
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {word: k for k, word in enumerate(vocabulary)},
        },
    }


def _weights(words: int, seed: int, width: int = 16, inner: int = 32) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    made: dict[str, torch.Tensor] = {}

    def linear(name: str, into: int, out: int) -> None:
        made[f"{name}.weight"] = torch.randn(out, into, generator=draw) * into**-0.5
        made[f"{name}.bias"] = torch.zeros(out)

    def norm(name: str) -> None:
        made[f"{name}.weight"], made[f"{name}.bias"] = torch.ones(width), torch.zeros(width)

    for name, rows in (("word", words), ("position", LENGTH), ("token_type", 2)):
        values = torch.randn(rows, width, generator=draw)
        made[f"embeddings.{name}_embeddings.weight"] = values
    norm("embeddings.LayerNorm")
    for k in range(2):
        layer = f"encoder.layer.{k}"
        for name in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{name}", width, width)
        linear(f"{layer}.attention.output.dense", width, width)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", width, inner)
        linear(f"{layer}.output.dense", inner, width)
        norm(f"{layer}.output.LayerNorm")
    linear("pooler.dense", width, width)
    return made
