"""What recording costs: eager calls without a profiler, with torch.profiler on the CPU alone, and with the device too.

python benchmarks/profiler.py          prints microseconds per call: medians of interleaved rounds
"""

import statistics
import time

import torch
from torch.profiler import ProfilerActivity, profile

ROUNDS = 31
MODES = {
    "none": None,
    "CPU": [ProfilerActivity.CPU],
    "CPU+TPU": [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
}


def cases():
    """Yields (name, calls in a round, function)."""
    x = torch.randn(8, 8, device="tpu")
    yield "add 8x8", 400, lambda: x + x
    yield "add_ 8x8", 400, lambda: x.add_(1.0)
    yield "mm 8x8", 400, lambda: x @ x
    yield "softmax 8x8", 400, lambda: torch.softmax(x, -1)
    big = torch.randn(256, 256, device="tpu")
    yield "add 256x256", 100, lambda: big + big

    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).to("tpu")
    inputs = torch.randn(16, 64, device="tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    yield "MLP AdamW step", 10, step


def measure(function, calls, activities) -> float:
    """Microseconds per call, the device's work included, starting and stopping a profiler not."""

    def run():
        start = time.perf_counter()
        for _ in range(calls):
            function()
        torch.tpu.synchronize()
        return (time.perf_counter() - start) / calls * 1e6

    if activities is None:
        return run()
    with profile(activities=activities):
        return run()


def main() -> None:
    """Prints one line for each case."""
    print(f"{'us per call':16}" + "".join(f"{mode:>10}" for mode in MODES) + "   CPU+TPU / CPU   CPU+TPU / none")
    for name, calls, function in cases():
        for _ in range(20):
            function()
        times: dict[str, list[float]] = {mode: [] for mode in MODES}
        for _ in range(ROUNDS):
            for mode, activities in MODES.items():
                times[mode].append(measure(function, calls, activities))
        # Rounds are compared with their neighbours, so that a machine that slows down meanwhile does not count.
        cpu, none = (
            statistics.median(a / b for a, b in zip(times["CPU+TPU"], times[mode], strict=True))
            for mode in ("CPU", "none")
        )
        medians = "".join(f"{statistics.median(t):10.2f}" for t in times.values())
        print(f"{name:16}{medians}{cpu:16.2f}{none:17.2f}", flush=True)


if __name__ == "__main__":
    main()
