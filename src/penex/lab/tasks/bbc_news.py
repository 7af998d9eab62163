"""BBC News as in the paper: a pretrained encoder is fine-tuned on 200 articles of five classes.

AdamW at 5e-6 (weight decay 0.01, torch's default), falling linearly to 0 over 200 epochs without
warm-up; batches of 8 as two micro-batches; clip 5; articles cut at 512 tokens. The paper has
RoBERTa (`--encoder roberta-base`); the encoder here, unless another is asked for, is a small one
that runs everywhere. Of the 2,225 articles 98 are copies, which are left out before the split:
1,000 to test on, 50 to validate and 200 to train on; the paper does not say how many it tests on.
"""

from dataclasses import replace
from pathlib import Path

from penex.lab.data import Collection, bbc, texts
from penex.lab.engine.recipe import Recipe
from penex.lab.ground.errors import LabError
from penex.lab.models.encoder import Encoder
from penex.lab.tasks import AS_PRINTED, Task, data_root, registered_search

_TUNED = registered_search()
_SMALL = Encoder()


def collect(root: Path | None = None, *, encoder: Encoder = _SMALL) -> Collection:
    """The articles of a folder or a table, as the tokens of an encoder."""
    root = data_root() if root is None else root
    place = bbc.find(root)
    if place is None:
        raise LabError(
            f"BBC News is not in {root}: it needs bbc/ with a folder of .txt files for each of "
            f"{', '.join(bbc.CLASSES)}, or {bbc.TABLES[0]} with the columns label and text. Get it "
            "with `penex data get bbc_news`, or say where it is with --data or PENEX_DATA."
        )
    found = bbc.read(place)
    facts = {
        "source": "bbc_news",
        "sha256": bbc.checksum(found),
        "articles": len(found.kept),
        "copies": found.copies,
        "encoder": encoder.name,
        **encoder.identity,
    }
    return texts.collection({"train": found}, encoder.tokenizer, facts)


TASK = Task(
    name="bbc_news",
    title="BBC News, a pretrained encoder fine-tuned by the paper's recipe",
    collect=collect,
    train_size=200,
    model="encoder",
    build=_SMALL.build,
    encoder=_SMALL,
    recipe=Recipe(
        epochs=200,
        lr=5e-6,
        optimizer="adamw",
        weight_decay=0.01,
        batch_size=8,
        accumulate=2,
        schedule="linear",
        clip=5.0,
        matmul_precision="high",
    ),
    arguments=AS_PRINTED,
    val=50,
    test=1000,
    preprocessing={"kind": "texts", "text_column": "text"},
    search={**_TUNED, "penex": (replace(_TUNED["penex"][0], high=3.0),)},
)
