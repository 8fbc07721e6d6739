"""How much of a copy between host and device is hidden behind computation.

For each direction: the time of the computation alone, of the copy alone, and of both enqueued together, the copy from
or to pinned memory on a stream of its own with ``non_blocking=True``. Hidden is what the pair saves, relative to the
shorter of the two. The computation is a sort, which XLA runs on one core, so that a CPU has one left for the copy.
"""

import argparse
import statistics
import time

import torch


def median_seconds(run, repeats):
    times = []
    for _ in range(repeats):
        torch.tpu.synchronize()
        begin = time.perf_counter()
        kept = run()
        torch.tpu.synchronize()
        times.append(time.perf_counter() - begin)
        del kept
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mib", type=int, default=64, help="size of the copy (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="runs of each kind (default: %(default)s)")
    args = parser.parse_args()

    n = args.mib << 18
    up, down = torch.randn(n).pin_memory(), torch.empty(n).pin_memory()
    there = torch.randn(n, device="tpu")
    keys = torch.rand(200_000, device="tpu")
    side = torch.Stream(device="tpu")

    def compute(rounds):
        return [keys.sort(descending=bool(i % 2)).values for i in range(rounds)]

    def to_device():
        with side:
            return up.to("tpu", non_blocking=True)

    def to_host():
        with side:
            return down.copy_(there, non_blocking=True)

    print(f"{'copy':>15} {'MiB':>5} {'compute ms':>11} {'copy ms':>9} {'both ms':>9} {'hidden':>7}")
    for name, copy in (("host to device", to_device), ("device to host", to_host)):
        copy()
        compute(2)
        copy_seconds = median_seconds(copy, args.repeats)
        # As long as the copy.
        rounds = max(1, round(copy_seconds / median_seconds(lambda: compute(1), args.repeats)))
        compute_seconds = median_seconds(lambda r=rounds: compute(r), args.repeats)
        both = median_seconds(lambda r=rounds, c=copy: (c(), compute(r)), args.repeats)
        hidden = (copy_seconds + compute_seconds - both) / min(copy_seconds, compute_seconds)
        print(
            f"{name:>15} {args.mib:>5} {compute_seconds * 1e3:>11.1f} {copy_seconds * 1e3:>9.1f} {both * 1e3:>9.1f} "
            f"{hidden:>7.0%}"
        )


if __name__ == "__main__":
    main()
