"""What `import torch` costs more where the package is installed: medians of interleaved processes.

python benchmarks/import_time.py [--runs N]
"""

import argparse
import os
import statistics
import subprocess
import sys
import time


def seconds(autoload: str) -> float:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import torch"], env=environment, capture_output=True, check=True
    )
    took = time.perf_counter() - start
    if done.stdout or done.stderr:
        sys.exit(f"import torch printed {(done.stdout + done.stderr).decode()!r}")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    seconds("1"), seconds("0")
    pairs = [(seconds("1"), seconds("0")) for _ in range(runs)]
    loaded, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    more = statistics.median(a - b for a, b in pairs)
    print(f"import torch: {bare:.3f} s without the package, {loaded:.3f} s with it")
    print(f"{more * 1000:.0f} ms more (median of {runs} pairs)")


if __name__ == "__main__":
    main()
