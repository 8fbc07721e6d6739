"""torch.compile: ours beside our eager, and Inductor and eager on the CPU. Medians of several rounds, in microseconds.

python benchmarks/compile.py [--rounds N] [--only PART_OF_A_NAME]
"""

import argparse
import statistics
import time

import torch
from torch import nn

import torch_tpu


def encoder(device: str) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device)


def convolutions(device: str) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).to(device)  # fmt: skip


def tiny(device, wrap):
    x, y = torch.ones(8, 8, device=device), torch.ones(8, 8, device=device)
    f = wrap(lambda x, y: x * 2 + y)

    def call():
        with torch.inference_mode():
            f(x, y)

    return call


def transformer_inference(device, wrap):
    f = wrap(encoder(device).eval())
    x = torch.randn(4, 16, 64).to(device)

    def call():
        with torch.no_grad():
            f(x)

    return call


def train(model, make_batch, loss, optimizer):
    """A maker of a training step, for `wrap` around the model."""

    def make(device, wrap):
        m = model(device)
        f, o = wrap(m), optimizer(m.parameters())
        batch = [t.to(device) for t in make_batch()]

        def call():
            o.zero_grad()
            loss(f, *batch).backward()
            o.step()

        return call

    def make_whole(device, wrap):
        m = model(device)
        o = optimizer(m.parameters())
        batch = [t.to(device) for t in make_batch()]

        def step(*batch):
            o.zero_grad()
            value = loss(m, *batch)
            value.backward()
            o.step()
            return value

        step = torch_tpu.compile_step(step, o)
        return lambda: step(*batch)

    return make, make_whole


transformer_train, transformer_whole = train(
    encoder,
    lambda: [torch.randn(4, 16, 64)],
    lambda f, x: f(x).square().mean(),
    lambda p: torch.optim.SGD(p, lr=1e-3),
)
cnn_train, cnn_whole = train(
    convolutions,
    lambda: [torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))],
    lambda f, x, y: nn.functional.cross_entropy(f(x), y),
    lambda p: torch.optim.SGD(p, lr=0.01),
)
CASES = {
    "tiny function": (tiny, None, 1000),
    "transformer inference": (transformer_inference, None, 50),
    "transformer SGD step": (transformer_train, transformer_whole, 20),
    "CNN SGD step": (cnn_train, cnn_whole, 10),
}


def measure(call, calls: int, rounds: int, device: str) -> tuple[float, float]:
    """Seconds of the first call, and the median of microseconds per call."""

    def run(n):
        start = time.perf_counter()
        for _ in range(n):
            call()
        if device == "tpu":
            torch.tpu.synchronize()
        return time.perf_counter() - start

    first = run(1)
    run(3)
    return first, statistics.median(run(calls) / calls for _ in range(rounds)) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"{'':<24}{'':<20}{'first call, s':>14}{'us a call':>12}")
    for name, (make, make_whole, calls) in CASES.items():
        if options.only not in name:
            continue
        kinds = [
            ("tpu compiled", "tpu", torch.compile, make),
            ("tpu eager", "tpu", lambda f: f, make),
            ("cpu inductor", "cpu", torch.compile, make),
            ("cpu eager", "cpu", lambda f: f, make),
        ]
        if make_whole:
            kinds.insert(0, ("tpu whole step", "tpu", None, make_whole))
        for kind, device, wrap, maker in kinds:
            torch._dynamo.reset()
            first, each = measure(maker(device, wrap), calls, options.rounds, device)
            print(f"{name:<24}{kind:<20}{first:>14.2f}{each:>12.0f}", flush=True)


if __name__ == "__main__":
    main()
