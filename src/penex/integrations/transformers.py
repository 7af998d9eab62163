"""A loss of ours in transformers: part of the model, of its checkpoints and of its scores."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

try:
    from transformers import TrainerCallback
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
except ImportError as error:
    raise ImportError(
        "penex.integrations.transformers needs transformers: pip install transformers."
    ) from error

from penex.base import Loss
from penex.baselines import CrossEntropyLoss

_NAME = "penex_loss"  # of the loss among the model's modules, and so in its checkpoints

# Names of what bends the logits after the last layer, in various models' configurations.
_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")


def attach(model: Any, loss: Loss | CrossEntropyLoss) -> "Attached":
    """Make a loss a part of a model, so that it is saved, moved and evaluated with it.

    Its state is then in every checkpoint, and eval(), which the Trainer calls before it evaluates,
    stops rho. A model made by a `from_pretrained` needs this again, before a Trainer resumes.

        attached = attach(model, penex.PENEX(0.1))
        trainer = Trainer(
            model, arguments, compute_loss_func=attached.compute_loss, callbacks=[attached], ...
        )

    The model's own ``loss_function`` is replaced as well, for loops without a Trainer:
    ``model(**inputs, labels=labels).loss`` is then ours in models that use it, as all causal
    language models do. `config.penex_temperature` says at which temperature the logits predict.

    Args:
        model: a transformers model that gives logits.
        loss: the loss; its reduction is the Trainer's affair.
    """
    problem = getattr(model.config, "problem_type", None)
    if problem not in (None, "single_label_classification"):
        raise ValueError(
            f"A loss of penex is for one label an example; this model is for {problem}."
        )
    setattr(model, _NAME, loss)
    return Attached(model)


class Attached(TrainerCallback):
    """A loss that is part of a model: what a Trainer computes and when rho moves.

    Attributes:
        model: the model.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.is_causal = type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
        model.config.penex_temperature = self.loss.temperature
        model.loss_function = self.loss_function

    @property
    def loss(self) -> Any:
        """The loss, wherever the model is by now."""
        return getattr(self.model, _NAME)

    def compute_loss(
        self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """The loss of a batch, for a Trainer's ``compute_loss_func``.

        Args:
            outputs: what the model gave, with logits.
            labels: class indices, a token's or an example's; -100 is ignored. Those of a causal
                language model are shifted here.
            num_items_in_batch: how many labels the whole step has, over its micro-batches: the sum
                is divided by it. None for the mean of this batch.
        """
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        return self._reduced(logits, labels, num_items_in_batch, shifts=self.is_causal)

    def loss_function(self, *args: Any, **kwargs: Any) -> Tensor:
        """The loss of a batch, for a model's own ``loss_function``, however that is called.

        Models call it with (logits, labels), (labels, logits) or names; only the type tells a
        class index from a logit.
        """
        tensors = [value for value in args if isinstance(value, Tensor)]
        logits = kwargs.get("pooled_logits", kwargs.get("logits"))
        labels = kwargs.get("labels")
        if logits is None or labels is None:
            if len(tensors) != 2:
                raise ValueError(
                    f"A loss of penex takes logits and labels; {type(self.model).__name__} calls "
                    f"its loss_function with {len(tensors)} tensors. Compute the loss from its "
                    "logits instead."
                )
            logits, labels = sorted(tensors, key=lambda t: t.is_floating_point(), reverse=True)
        shifted = kwargs.get("shift_labels")
        return self._reduced(
            logits,
            labels if shifted is None else shifted,
            kwargs.get("num_items_in_batch"),
            shifts=self.is_causal and shifted is None,
        )

    def folded(self, head: str | None = None) -> Any:
        """A copy of the model whose plain softmax gives the loss's probabilities.

        The last layer is multiplied by 1 / temperature and the loss is left out, so that pipelines,
        `generate` and other people's code get calibrated scores without knowing of any loss. Tied
        embeddings are untied. It is for prediction: to train on, keep the model itself.

        Args:
            head: the name of the layer that gives the logits, such as ``classifier.out_proj``;
                None to find it by its size.
        """
        config = self.model.config.get_text_config()
        if cap := next((name for name in _CAPS if getattr(config, name, None)), None):
            raise ValueError(
                f"{type(self.model).__name__} bends the logits after its last layer ({cap}), so "
                "that no factor there is a temperature: divide its logits by "
                "config.penex_temperature instead."
            )
        sharpness = 1 / self.loss.temperature
        attached, model = self.loss, self.model
        delattr(model, _NAME)  # what the copy is not to have
        replaced, model._loss_function = model._loss_function, None
        try:
            copied = copy.deepcopy(model)
        finally:
            setattr(model, _NAME, attached)
            model._loss_function = replaced
        del copied._loss_function
        layer = _head(copied, head)
        others = [
            p for m in copied.modules() if m is not layer for p in m.parameters(recurse=False)
        ]
        with torch.no_grad():
            if any(layer.weight is other for other in others):
                layer.weight = nn.Parameter(layer.weight.clone())
                copied.config.tie_word_embeddings = False
            for parameter in layer.parameters(recurse=False):
                parameter.mul_(sharpness)
        copied.config.penex_temperature = 1.0
        return copied.eval()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step of rho has as many micro-batches as one of the optimiser."""
        if hasattr(self.loss, "accumulate"):
            self.loss.accumulate = args.gradient_accumulation_steps
        self.model.config.penex_temperature = self.loss.temperature

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Close a window that the end of an epoch has cut short."""
        if hasattr(self.loss, "end_step"):
            self.loss.end_step()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Rho, among what is printed and what ``trainer.state.log_history`` keeps of a step."""
        if logs is not None and "loss" in logs and hasattr(self.loss, "end_step"):
            logs["rho"] = state.log_history[-1]["rho"] = self.loss.rho.item()

    def _reduced(
        self, logits: Tensor, labels: Tensor | None, items: Tensor | int | None, *, shifts: bool
    ) -> Tensor:
        if labels is None:
            raise ValueError(
                f"{type(self.model).__name__} was given no labels: its forward needs an argument "
                "`labels`, or TrainingArguments label_names=['labels'], for the Trainer to keep "
                "that column."
            )
        if shifts:
            labels = nn.functional.pad(labels, (0, 1), value=self.loss.ignore_index)[..., 1:]
        if logits.dim() == 3 and labels.dim() == 2:  # tokens: the classes come last
            logits, labels = logits.flatten(0, 1), labels.flatten()
        elif labels.dim() == 2 and labels.shape[1] == 1:
            labels = labels.squeeze(1)
        with self.loss.reducing("mean" if items is None else "sum") as loss:
            value: Tensor = loss(logits, labels.to(logits.device))
        return value if items is None else value / torch.as_tensor(items, device=value.device)


def _head(model: Any, name: str | None) -> Any:
    """The layer that gives the logits, or a ValueError that asks for its name."""
    if name is not None:
        return model.get_submodule(name)
    if (layer := model.get_output_embeddings()) is not None:
        return layer
    classes = model.config.num_labels
    found = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == classes
    ]
    if len(found) != 1:
        names = ", ".join(name for name, _ in found) or "none"
        raise ValueError(
            f"Which layer gives the {classes} logits? By size it could be: {names}. Give its name "
            "as head=."
        )
    return found[0][1]
