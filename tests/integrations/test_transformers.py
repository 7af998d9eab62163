"""A loss in a real Trainer: it is saved, resumed and evaluated with the model."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import penex

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from penex.integrations.transformers import Attached, attach  # noqa: E402
from small_transformers import CLASSES, LENGTH, WORDS, classifier, language_model  # noqa: E402

pytestmark = pytest.mark.frameworks

ROWS = 28


def rows(kind: str = "classes", seed: int = 0) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(1, WORDS, (ROWS, LENGTH), generator=generator)
    if kind == "words":
        hidden = torch.rand(ROWS, LENGTH, generator=generator) < 0.3
        labels = words.masked_fill(hidden, -100)
    else:
        labels = words.sum(1) % CLASSES
    return [{"input_ids": x, "labels": y} for x, y in zip(words, labels, strict=True)]


def trainer(attached: Attached, folder: Path, kind: str = "classes", **options: Any) -> Any:
    """Seven batches an epoch, two to a step: the last window of an epoch has one."""
    arguments = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=4, gradient_accumulation_steps=2, use_cpu=True,
        learning_rate=0.01, lr_scheduler_type="constant", report_to=[],
        disable_tqdm=True, logging_steps=1, max_grad_norm=0.0, seed=3,
        **{"eval_strategy": "epoch", "save_strategy": "epoch", "num_train_epochs": 2, **options},
    )  # fmt: skip
    return transformers.Trainer(
        attached.model,
        arguments,
        train_dataset=rows(kind),
        eval_dataset=rows(kind, seed=1),
        compute_loss_func=attached.compute_loss,
        callbacks=[attached],
    )


def plain_loop(model: Any, loss: Any, batches: list[list[dict[str, Tensor]]], kind: str) -> None:
    """What the Trainer is to do, by hand: windows of two micro-batches, and one of one."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
    for epoch in batches:
        for start in range(0, len(epoch), 2):
            window = epoch[start : start + 2]
            labels = [
                part["labels"][:, 1:] if kind == "words" else part["labels"] for part in window
            ]
            items = sum(int((y != -100).sum()) for y in labels)
            optimizer.zero_grad()
            for part, y in zip(window, labels, strict=True):
                logits = model(part["input_ids"]).logits
                if kind == "words":
                    logits, y = logits[:, :-1].reshape(-1, WORDS), y.flatten()
                (loss(logits, y) / items).backward()
            optimizer.step()
            loss.end_step()


@pytest.mark.parametrize("kind", ["classes", "words"])
@pytest.mark.parametrize("scale", ["paper", "cross_entropy"])
def test_a_trainer_is_a_plain_loop(kind: str, scale: str, tmp_path: Path) -> None:
    """With windows cut short and evaluations in between: weights and rho are equal."""
    model = classifier() if kind == "classes" else language_model()
    twin = copy.deepcopy(model)
    attached = attach(model, penex.PENEX(0.2, scale=scale))
    made = trainer(attached, tmp_path, kind, save_strategy="no")
    seen: list[dict[str, Tensor]] = []
    step = made.training_step

    def watched(model: Any, inputs: Any, *rest: Any) -> Tensor:
        seen.append({name: value.clone() for name, value in inputs.items()})
        value: Tensor = step(model, inputs, *rest)
        return value

    made.training_step = watched
    made.train()
    assert len(seen) == 14
    loss = penex.PENEX(0.2, scale=scale, accumulate=2, reduction="sum")
    plain_loop(twin, loss, [seen[:7], seen[7:]], kind)
    torch.testing.assert_close(attached.loss.rho, loss.rho, rtol=1e-5, atol=0)
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(model.get_parameter(name), parameter, rtol=1e-4, atol=1e-5)
    logged = [entry["rho"] for entry in made.state.log_history if "rho" in entry]
    assert logged[-1] == attached.loss.rho
    assert len(set(logged)) == 8  # one step of rho for each of the optimiser


def test_evaluation_moves_nothing(tmp_path: Path) -> None:
    attached = attach(classifier(), penex.PENEX(0.1))
    made = trainer(attached, tmp_path)
    made.train()
    before = attached.loss.rho.clone()
    first, second = made.evaluate()["eval_loss"], made.evaluate()["eval_loss"]
    made.predict(rows(seed=2))
    assert attached.loss.rho == before != 0
    assert first == second


def test_a_checkpoint_resumes_with_rho(tmp_path: Path) -> None:
    """The second epoch from a checkpoint is that of an undisturbed training."""
    whole = attach(classifier(), penex.PENEX(0.1))
    trainer(whole, tmp_path / "whole").train()
    trainer(attach(classifier(), penex.PENEX(0.1)), tmp_path / "part", num_train_epochs=1).train()
    resumed = attach(classifier(), penex.PENEX(0.1))
    made = trainer(resumed, tmp_path / "part")
    made.train(resume_from_checkpoint=True)
    assert resumed.loss.rho == whole.loss.rho
    for name, parameter in whole.model.named_parameters():
        torch.testing.assert_close(resumed.model.get_parameter(name), parameter)
    again = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "whole" / "checkpoint-8"
    )
    assert again.config.penex_temperature == pytest.approx(1 / 1.1)
    torch.testing.assert_close(again.classifier.weight, whole.model.classifier.weight)


def test_a_folded_model_gives_calibrated_scores_to_a_pipeline(tmp_path: Path) -> None:
    attached = attach(classifier(), penex.PENEX(0.5))
    trainer(attached, tmp_path / "run", eval_strategy="no", save_strategy="no").train()
    words = torch.arange(1, 1 + LENGTH).view(1, -1)
    with torch.no_grad():
        expected = attached.loss.probabilities(attached.model.eval()(words).logits)[0]
    attached.folded().save_pretrained(tmp_path / "final")
    assert attached.model.penex_loss is attached.loss

    vocabulary = {"[UNK]": 0, **{f"w{i}": i for i in range(1, WORDS)}}
    tokenizers = pytest.importorskip("tokenizers")
    words_only = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    words_only.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    pipeline = transformers.pipeline(
        "text-classification",
        model=transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "final"),
        tokenizer=transformers.PreTrainedTokenizerFast(
            tokenizer_object=words_only, unk_token="[UNK]", pad_token="[UNK]"
        ),
        device="cpu",
    )
    scores = pipeline(" ".join(f"w{i}" for i in range(1, 1 + LENGTH)), top_k=None)
    ours = torch.tensor([s["score"] for s in sorted(scores, key=lambda s: str(s["label"]))])
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)


def test_a_model_that_is_given_no_labels_says_what_it_needs(tmp_path: Path) -> None:
    """A Trainer drops a column that the model's forward does not name."""

    class Network(transformers.PreTrainedModel):  # type: ignore[name-defined]
        config_class = transformers.PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.layer = nn.Linear(LENGTH, CLASSES)
            self.post_init()

        def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
            return {"logits": self.layer(input_ids.float())}

    attached = attach(Network(transformers.PretrainedConfig()), penex.PENEX(0.1))
    with pytest.raises(ValueError, match=r"was given no labels.*label_names"):
        trainer(attached, tmp_path, eval_strategy="no").train()
    trainer(attached, tmp_path, label_names=["labels"]).train()
    assert attached.loss.rho > 0
