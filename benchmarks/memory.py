"""A million small eager ops: resident memory of the process while they run, and how long each takes.

python benchmarks/memory.py [--ops N]
"""

import argparse
import pathlib
import re
import time

import torch


def resident_mib() -> float:
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=1_000_000)
    ops = parser.parse_args().ops
    x = torch.ones(8, 8, device="tpu")

    def work(n: int) -> None:
        y = x
        for i in range(n // 4):  # four ops, one of them through a view, and a number that changes
            y = y * 0.5 + i
            y[i % 8].add_(1).mul_(0.5)
        y.sum().item()

    work(4000)
    first = resident_mib()
    print(f"{'ops':>10} {'MiB':>8} {'us an op':>9}")
    print(f"{4000:>10} {first:8.1f}")
    for tenth in range(1, 11):
        start = time.perf_counter()
        work(ops // 10)
        print(f"{tenth * ops // 10:>10} {resident_mib():8.1f} {(time.perf_counter() - start) / (ops // 10) * 1e6:9.1f}")
    print(f"grown by {resident_mib() - first:.1f} MiB; {torch.tpu.memory_allocated()} bytes in tensors")


if __name__ == "__main__":
    main()
