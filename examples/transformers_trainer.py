"""PENEX in a transformers Trainer, and a saved model whose scores are calibrated.

python examples/transformers_trainer.py [--epochs 5]
"""

import argparse
import tempfile

import torch
from transformers import (
    AutoModelForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

import penex
from penex.integrations.transformers import attach

WORDS, LENGTH = 50, 12


def sentences(n: int) -> list[dict[str, torch.Tensor]]:
    """Made-up sentences; their class is the word that comes first of the three that count."""
    words = torch.randint(4, WORDS, (n, LENGTH))
    labels = torch.randint(3, (n,))
    words[torch.arange(n), torch.randint(LENGTH, (n,))] = 1 + labels
    return [{"input_ids": x, "labels": y} for x, y in zip(words, labels, strict=True)]


def main() -> None:
    """Train a tiny model from scratch; save it with the temperature folded into its last layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args().epochs

    torch.manual_seed(0)
    config = DistilBertConfig(
        vocab_size=WORDS, dim=32, n_layers=1, n_heads=2, hidden_dim=64, num_labels=3,
        max_position_embeddings=LENGTH,
    )  # fmt: skip
    model = DistilBertForSequenceClassification(config)
    attached = attach(model, penex.PENEX(alpha=0.1))  # part of the model and its checkpoints
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=epochs, per_device_train_batch_size=16, learning_rate=3e-3,
            gradient_accumulation_steps=2, eval_strategy="epoch", save_strategy="epoch",
            report_to=[], disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        trainer = Trainer(
            model, arguments, train_dataset=sentences(500), eval_dataset=sentences(100),
            compute_loss_func=attached.compute_loss, callbacks=[attached],
        )  # fmt: skip
        trainer.train()
        attached.folded().save_pretrained(f"{folder}/final")  # a plain softmax is right for it
        final = AutoModelForSequenceClassification.from_pretrained(f"{folder}/final")
    held = sentences(200)
    words = torch.stack([row["input_ids"] for row in held])
    labels = torch.stack([row["labels"] for row in held])
    with torch.no_grad():
        probabilities = final(words).logits.softmax(1)
    right = (probabilities.argmax(1) == labels).float().mean()
    print(f"rho {attached.loss.rho:.4f}, accuracy {right:.3f}")


if __name__ == "__main__":
    main()
