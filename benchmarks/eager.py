"""Eager calls and training steps, ours beside peers, in one run: medians of several rounds, interleaved.

python benchmarks/eager.py                                    ours and torch on the CPU
python benchmarks/eager.py --peer NAME=PYTHON:MODULE ...      and another backend of the device "tpu": an interpreter,
                                                              and a module that makes the device when imported
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def cases(torch, device):
    """Yields (name, calls in a round, function)."""
    generator = torch.Generator().manual_seed(0)

    def tensor(*shape):
        return torch.randn(*shape, generator=generator).to(device)

    x, y = tensor(8, 8), tensor(8, 8)
    numbers = iter(float(n) / 7 for n in range(10**9))
    yield "add 8x8", 1000, lambda: x + y
    yield "add_ 8x8", 1000, lambda: x.add_(y)
    yield "mm 8x8", 500, lambda: x @ y
    yield "softmax 8x8", 500, lambda: torch.softmax(x, -1)
    yield "mul by a changing number", 500, lambda: x * next(numbers)

    big = tensor(512, 512)
    yield "add 512x512", 100, lambda: big + big

    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).to(device)
    inputs = tensor(32, 256)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def mlp_step():
        adamw.zero_grad()
        model(inputs).square().mean().backward()
        adamw.step()

    yield "MLP AdamW step", 20, mlp_step

    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device)
    sequence = tensor(4, 16, 64)
    sgd = torch.optim.SGD(encoder.parameters(), lr=1e-3)

    def transformer_step():
        sgd.zero_grad()
        encoder(sequence).square().mean().backward()
        sgd.step()

    yield "4-layer transformer SGD step", 10, transformer_step


def measure(module: str, device: str) -> None:
    """Prints a JSON object: microseconds per call of each case."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(module)))
    if module:
        __import__(os.path.splitext(os.path.basename(module))[0])
    import torch

    torch.set_num_threads(2)
    synchronize = torch.accelerator.synchronize if device != "cpu" else lambda: None
    result = {}
    for name, calls, function in cases(torch, device):
        for _ in range(20):
            function()
        synchronize()
        rounds = []
        for _ in range(7):
            start = time.perf_counter()
            for _ in range(calls):
                function()
            synchronize()
            rounds.append((time.perf_counter() - start) / calls * 1e6)
        result[name] = statistics.median(rounds)
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON:MODULE")
    parser.add_argument("--rounds", type=int, default=2, help="how often each side is started")
    parser.add_argument("--child", nargs=2, metavar=("MODULE", "DEVICE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        measure(*arguments.child)
        return
    sides = {"ours": (sys.executable, "torch_tpu", "tpu"), "CPU torch": (sys.executable, "", "cpu")}
    for peer in arguments.peer:
        name, rest = peer.split("=", 1)
        sides[name] = (*rest.split(":", 1), "tpu")
    results = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, (python, module, device) in sides.items():
            done = subprocess.run(
                [python, "-P", __file__, "--child", module, device],
                check=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            results[name].append(json.loads(done.stdout.splitlines()[-1]))
    print(
        "| microseconds per call | "
        + " | ".join(sides)
        + " | "
        + " | ".join(f"ours ÷ {n}" for n in sides if n != "ours")
        + " |"
    )
    print("| --- |" + " --- |" * (2 * len(sides) - 1))
    for case in results["ours"][0]:
        best = {name: min(r[case] for r in rs) for name, rs in results.items()}
        row = [f"{v:.1f}" for v in best.values()] + [f"{best['ours'] / v:.2f}" for n, v in best.items() if n != "ours"]
        print(f"| {case} | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
