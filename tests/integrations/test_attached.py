"""A loss that is part of a transformers model, where there is no Trainer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import penex


@pytest.fixture(scope="module")
def models() -> Any:
    """Small models; imported where they are used, for transformers takes seconds."""
    return pytest.importorskip("small_transformers")


def test_a_folded_language_model_is_untied_and_its_embeddings_stay(
    models: Any, tmp_path: Path
) -> None:
    model = models.language_model()
    attached = models.attach(model, penex.PENEX(0.5))
    words = torch.arange(1, 7).view(1, -1)
    attached.folded().save_pretrained(tmp_path)
    final = models.transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(final(words).logits, 1.5 * model(words).logits)
    assert final.get_input_embeddings().weight.equal(model.get_input_embeddings().weight)


def test_without_a_trainer_the_models_own_loss_is_ours(models: Any) -> None:
    """In eval() and in train(); labels are shifted, or were shifted by whoever calls."""
    model = models.language_model()
    attached = models.attach(model, penex.PENEX(0.3, scale="paper"))
    words = torch.arange(1, 13).view(2, 6)
    given = model(words, labels=words).loss
    expected = penex.PENEX(0.3, scale="paper")
    logits = model(words).logits
    torch.testing.assert_close(
        given, expected(logits[:, :-1].reshape(-1, models.WORDS), words[:, 1:].flatten())
    )
    torch.testing.assert_close(attached.loss.rho, expected.rho)
    model.eval()
    shifted = nn.functional.pad(words, (0, 1), value=-100)[:, 1:]
    same = model(words, labels=words).loss
    torch.testing.assert_close(same, model(words, labels=words, shift_labels=shifted).loss)
    torch.testing.assert_close(attached.loss.rho, expected.rho)


def test_an_image_models_own_loss_is_ours(models: Any) -> None:
    config = models.transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        image_size=8, patch_size=4, num_labels=models.CLASSES,
    )  # fmt: skip
    model = models.transformers.ViTForImageClassification(config).eval()
    attached = models.attach(model, penex.PENEX(0.1, rho=0.5))
    images, labels = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 0])
    given = model(images, labels=labels)
    torch.testing.assert_close(given.loss, attached.loss(given.logits, labels))
    model.config.num_labels = 8
    with pytest.raises(ValueError, match="head="):
        attached.folded()


def test_what_has_no_single_label_is_refused(models: Any) -> None:
    regression = models.classifier()
    regression.config.problem_type = "regression"
    with pytest.raises(ValueError, match="regression"):
        models.attach(regression, penex.PENEX(0.1))
    config = models.transformers.DistilBertConfig(n_layers=1, dim=8, n_heads=2, hidden_dim=8)
    answers = models.transformers.DistilBertForQuestionAnswering(config)
    attached = models.attach(answers, penex.PENEX(0.1))
    with pytest.raises(ValueError, match="4 tensors"):
        attached.loss_function(*(torch.zeros(1, 2) for _ in range(4)))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_from_pretrained(models: Any, kept: bool, dtype: str, tmp_path: Path) -> None:
    """It builds on the meta device and fills what a checkpoint lacks with empty memory."""

    class Model(models.transformers.PreTrainedModel):
        config_class = models.transformers.PretrainedConfig
        base_model_prefix = ""

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.head = nn.Linear(3, 4)
            self.loss = penex.PENEX(0.1, accumulate=2)
            self.post_init()

    saved = Model(models.transformers.PretrainedConfig())
    saved.loss(torch.randn(4, 3), torch.arange(4) % 3)
    saved.loss.end_step()
    saved.loss(torch.randn(4, 3), torch.arange(4) % 3)
    state = {k: v for k, v in saved.state_dict().items() if kept or k.startswith("head.")}
    saved.save_pretrained(tmp_path, state_dict=state)
    torch.use_deterministic_algorithms(True)
    try:
        model = Model.from_pretrained(tmp_path, dtype=getattr(torch, dtype))
    finally:
        torch.use_deterministic_algorithms(False)
    assert model.loss.rho.dtype == model.loss.window.dtype == torch.float32
    before = saved.loss if kept else penex.PENEX(0.1, accumulate=2)
    rounding = 1e-2 if dtype == "bfloat16" else 0.0
    torch.testing.assert_close(model.loss.rho, before.rho, rtol=rounding, atol=0)
    torch.testing.assert_close(model.loss.window, before.window, rtol=rounding, atol=0)


def test_logits_that_are_bent_after_the_last_layer_are_not_folded(models: Any) -> None:
    config = models.transformers.Gemma2Config(
        vocab_size=models.WORDS, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, head_dim=4,
    )  # fmt: skip
    attached = models.attach(models.transformers.Gemma2ForCausalLM(config), penex.PENEX(0.5))
    with pytest.raises(ValueError, match=r"final_logit_softcapping.*config.penex_temperature"):
        attached.folded()
    config.final_logit_softcapping = None
    attached.folded()
