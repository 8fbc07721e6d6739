"""A small GPT learns Python's own documentation character by character, beside the CPU, and then writes some.

    python examples/char_gpt.py [device]

The text ships with Python (`pydoc_data.topics`, what `help("for")` prints). Writes demo_out/char_gpt.txt: what the
model wrote.
"""

import pathlib
import pydoc_data.topics
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional
from tqdm import tqdm

STEPS, STEPS_ON_CPU = 250, 60  # the CPU goes along for the first ones
BATCH, CONTEXT = 16, 64
WIDTH, HEADS, LAYERS = 128, 4, 2
LOSS = 2.5  # nats a character, at the end; guessing by frequency alone gives about 3.2
LOSS_DIFFERENCE = 0.05  # sums are rounded in another order
PROMPT = "The following statement is executed when the name of the function"
OUT = pathlib.Path(__file__).resolve().parent.parent / "demo_out"


class Block(nn.Module):
    """Attention to what came before, then a perceptron: (batch, time, width) to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(self.before_attention(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        q, k, v = (h.transpose(1, 2) for h in heads.unbind(2))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class Gpt(nn.Module):
    """Characters (batch, time) to logits of the next one (batch, time, vocabulary)."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary))

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        places = torch.arange(characters.shape[1], device=characters.device)
        return self.head(self.blocks(self.characters(characters) + self.places(places)))


def text() -> str:
    """About 700,000 characters: the topics of Python's help, in order of their names."""
    topics = pydoc_data.topics.topics
    return "\n\n".join(topics[name] for name in sorted(topics)).encode("ascii", "ignore").decode()


def train(device: str, steps: int) -> tuple[list[float], list[float], Gpt, list[str]]:
    """Trains from a fixed seed. Returns the loss and the seconds of each step, the model and its vocabulary."""
    torch.manual_seed(0)
    written = text()
    vocabulary = sorted(set(written))
    place = {character: i for i, character in enumerate(vocabulary)}
    data = torch.tensor([place[character] for character in written])
    model = Gpt(len(vocabulary)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draws = torch.Generator().manual_seed(0)
    losses, seconds = [], []
    with tqdm(range(steps), desc=f"char GPT on {device}", unit="step") as bar:
        for _ in bar:
            start = time.perf_counter()
            first = torch.randint(len(data) - CONTEXT, (BATCH, 1), generator=draws)
            piece = data[first + torch.arange(CONTEXT + 1)].to(device)
            loss = functional.cross_entropy(model(piece[:, :-1]).flatten(0, 1), piece[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            seconds.append(time.perf_counter() - start)
            bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
    return losses, seconds, model, vocabulary


@torch.no_grad()
def write(model: Gpt, vocabulary: list[str], device: str, characters: int = 300) -> str:
    """What the model goes on with after PROMPT, drawn on the device. The window slides, so that its shape stays."""
    torch.manual_seed(0)
    window = torch.tensor([[vocabulary.index(c) for c in PROMPT[-CONTEXT:].rjust(CONTEXT)]]).to(device)
    drawn = []
    for _ in range(characters):
        probabilities = (model(window)[0, -1] / 0.7).softmax(0)
        drawn.append(torch.multinomial(probabilities, 1))
        window = torch.cat((window[:, 1:], drawn[-1].unsqueeze(0)), dim=1)
    return PROMPT + "".join(vocabulary[i] for i in torch.cat(drawn).tolist())


def run(device: str = "tpu") -> None:
    """Trains on the device, for some steps also on the CPU, and lets the device write.

    Raises:
        AssertionError: the model learned too little on the device, or otherwise than on the CPU.
    """
    runs = {device: train(device, STEPS)}
    if device != "cpu":
        runs["cpu"] = train("cpu", STEPS_ON_CPU)
    last = {name: statistics.mean(losses[-20:]) for name, (losses, *_) in runs.items()}
    for name, (losses, seconds, *_) in runs.items():
        print(
            f"{name:>4}: loss {losses[0]:.3f} at first, {last[name]:.3f} after {len(losses)} steps, "
            f"first step {seconds[0]:.2f} s, median step {1000 * statistics.median(seconds):.1f} ms"
        )
    start = time.perf_counter()
    written = write(*runs[device][2:], device)
    OUT.mkdir(exist_ok=True)
    (OUT / "char_gpt.txt").write_text(written + "\n")
    print(f"written in {time.perf_counter() - start:.1f} s:\n\n{written}")
    assert last[device] < LOSS, f"expected a loss below {LOSS} at last, but got {last[device]:.3f}"
    together = {name: statistics.mean(losses[STEPS_ON_CPU - 20 : STEPS_ON_CPU]) for name, (losses, *_) in runs.items()}
    assert max(together.values()) - min(together.values()) < LOSS_DIFFERENCE, f"mean losses of 20 steps: {together}"


if __name__ == "__main__":
    run(*sys.argv[1:])
