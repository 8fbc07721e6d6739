"""The examples in one go, and what they cost: `make demo`.

python examples/demo.py [device]
"""

import sys
import time

import char_gpt
import digits_cnn
import sentence_similarity
import torch


def run(device: str = "tpu") -> None:
    """Runs each example on the device and ends with a table.

    Raises:
        AssertionError: an example is not as exact as it must be, or an op had to run on the CPU.
    """
    rows = []
    examples = (
        ("Sentence similarity", sentence_similarity),
        ("Handwritten digits", digits_cnn),
        ("Character GPT", char_gpt),
    )
    for title, example in examples:
        print(f"\n=== {title} on {device} ===\n", flush=True)
        if device != "cpu":
            torch.tpu.reset_counters()
            torch.tpu.reset_peak_memory_stats()
        start = time.perf_counter()
        example.run(device)
        seconds = time.perf_counter() - start
        rows.append((title, seconds, *(usage() if device != "cpu" else (0, 0.0, 0, 0, 0, 0))))

    names = (
        "example",
        "seconds",
        "compiles",
        "compiling s",
        "memory hits",
        "disk hits",
        "fallbacks",
        "peak MiB",
    )
    print("\n" + f"{names[0]:<20}" + "".join(f"{name:>13}" for name in names[1:]))
    for title, seconds, compiles, compiling, memory_hits, disk_hits, fallbacks, peak in rows:
        print(
            f"{title:<20}{seconds:>13.1f}{compiles:>13}{compiling:>13.1f}{memory_hits:>13}{disk_hits:>13}{fallbacks:>13}"
            f"{peak / 2**20:>13.1f}"
        )
    assert all(row[-2] == 0 for row in rows), "ops ran on the CPU: python -m torch_tpu names them"


def usage() -> tuple[int, float, int, int, int, int]:
    """Compiles, seconds in them, programs found in memory and on disk, ops run on the CPU, peak bytes of the device."""
    count = torch.tpu.counters()
    return (
        count["compiles"],
        count["compile_seconds"],
        count["memory_hits"],
        count["disk_hits"],
        sum(count["fallbacks"].values()),
        torch.tpu.max_memory_allocated(),
    )


if __name__ == "__main__":
    run(*sys.argv[1:])
