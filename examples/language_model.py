"""Train a causal language model of `transformers` with PENEX, without storing its logits.

    python examples/language_model.py                                  # a small random Llama
    python examples/language_model.py --loss cross_entropy             # the same with cross-entropy
    python examples/language_model.py --model NAME --text my.txt       # fine-tune one that you have

Every word of the text is a token unless a pretrained model brings its own. What matters is in
`step`: the hidden states and the last layer's weights go to the loss, instead of the logits.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

import penex

try:
    import transformers
except ImportError:
    print("This example needs transformers: pip install 'penex[text]'.", file=sys.stderr)
    sys.exit(2)

LOSSES = ("penex", "cross_entropy")


def step(model: torch.nn.Module, loss: penex.PENEX | None, tokens: Tensor) -> Tensor:
    """The loss of predicting each token from those before it; None is cross-entropy on logits."""
    hidden = model.base_model(input_ids=tokens).last_hidden_state[:, :-1]  # type: ignore[operator]
    head = model.get_output_embeddings()  # type: ignore[operator]
    target = tokens[:, 1:]
    if loss is not None:
        return loss.linear(hidden, head.weight, target, head.bias)
    return F.cross_entropy(head(hidden).flatten(0, 1), target.flatten())


@torch.no_grad()
def held_out(model: torch.nn.Module, loss: penex.PENEX | None, tokens: Tensor) -> float:
    """The cross-entropy of the predicted probabilities, at the loss's own temperature."""
    logits = model(input_ids=tokens).logits[:, :-1].float()
    if loss is not None:
        logits = loss.rescale(logits)
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item()


def words(text: str, classes: int) -> Tensor:
    """Each word's number, in the order in which they first appear."""
    known: dict[str, int] = {}
    return torch.tensor([known.setdefault(word, len(known)) % classes for word in text.split()])


def small_model(classes: int) -> torch.nn.Module:
    """A Llama with two layers and random weights."""
    made: torch.nn.Module = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=classes, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=256,
        )
    )  # fmt: skip
    return made


def main() -> None:
    """Train, and print the losses as they come."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, default=Path(__file__).parents[1] / "README.md")
    parser.add_argument("--model", help="of the hub or a folder; its tokenizer is taken too")
    parser.add_argument("--loss", choices=LOSSES, default="penex")
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--classes", type=int, default=32000, help="of the random model")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--length", type=int, default=64, help="tokens of a sequence")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if not options.text.is_file():
        parser.error(f"{options.text} is no file: name a text with --text.")
    torch.manual_seed(0)
    text = options.text.read_text()
    if options.model:
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model)
        coder = transformers.AutoTokenizer.from_pretrained(options.model)
        tokens = torch.tensor(coder(text)["input_ids"])
    else:
        model, tokens = small_model(options.classes), words(text, options.classes)
    rows = tokens[: len(tokens) // options.length * options.length].view(-1, options.length)
    if len(rows) < 4:
        parser.error(f"The text has {len(tokens)} tokens; it takes {4 * options.length} at least.")
    model, rows = model.to(options.device), rows.to(options.device)
    train, test = rows[: -len(rows) // 4], rows[-len(rows) // 4 :]
    loss = penex.PENEX(options.alpha).to(options.device) if options.loss == "penex" else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    for number in range(options.steps):
        batch = train[torch.randint(len(train), (8,), device=options.device)]
        value = step(model, loss, batch)
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if number % 10 == 0 or number == options.steps - 1:
            rho = "" if loss is None else f"  rho {loss.rho.item():.2e}"
            print(f"step {number:4}  loss {value.item():8.4f}{rho}", flush=True)
    model.eval()
    print(f"held-out cross-entropy {held_out(model, loss, test):.3f}")
    if options.device.startswith("cuda"):
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
