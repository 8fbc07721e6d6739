"""Every OpInfo and ModuleInfo of PyTorch on the device, against the CPU: runs them, sums up, writes the page.

python tools/sweep.py run [--results FILE] [--ops REGEX] [--dtypes A,B] [--kinds A,B] [--samples N] [--jobs N]
                          [--limit S] [--fresh]
    Runs what FILE (build/sweep.jsonl) has no result of, in worker processes; a worker that dies or hangs costs its own
    case only. --fresh forgets FILE. --limit: seconds a case may take.
python tools/sweep.py table [--results FILE] [--kinds A,B] [--failures [REGEX]]
    Prints passed / all by kind and dtype, and with --failures what fails.
python tools/sweep.py page [--results FILE]
    Writes docs/opinfo.md.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "sweep.jsonl"
PAGE = ROOT / "docs" / "opinfo.md"
# Compiled programs stay in a process: it is replaced before they fill the memory.
WORKER_KB = 4 << 20


def worker():
    """Reads tasks as JSON lines, answers each with a JSON line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints
    sys.path.insert(0, str(ROOT / "tests"))
    import opinfo_checks
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        task = json.loads(line)
        start = time.monotonic()
        result = opinfo_checks.run(**task)
        result |= {
            "name": task["name"],
            "dtype": task["dtype"],
            "samples": task["samples"],
            "seconds": round(time.monotonic() - start, 2),
        }
        with open("/proc/self/statm") as f:
            result["kb"] = int(f.read().split()[1]) * 4
        answers.write(json.dumps(result) + "\n")
        answers.flush()


class Worker:
    """A process that runs tasks one after the other, and the task it has."""

    def __init__(self):
        self.task, self.buffer, self.deadline = None, b"", 0.0
        self.process = subprocess.Popen(
            [sys.executable, __file__, "worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"TORCH_TPU_FALLBACK": "silent"},
        )

    def give(self, task):
        # Beyond its own limit, it hangs where no signal reaches; the first task also pays for the imports.
        self.task, self.deadline = task, time.monotonic() + task["limit_s"] + 60
        self.process.stdin.write(json.dumps(task).encode() + b"\n")
        self.process.stdin.flush()

    def end(self):
        self.process.kill()
        return self.process.wait()


def run(options):
    sys.path.insert(0, str(ROOT / "tests"))
    import opinfo_checks

    if options.fresh and options.results.exists():
        options.results.unlink()
    done = {(r["name"], r["dtype"]) for r in read(options.results)}
    dtypes = options.dtypes.split(",") if options.dtypes else None
    kinds = options.kinds.split(",") if options.kinds else list(opinfo_checks.KINDS)
    tasks = [
        dict(name=name, dtype=dtype, kinds=kinds, samples=options.samples, limit_s=options.limit)
        for name, dtype in opinfo_checks.tasks()
        if (name, dtype) not in done and (dtypes is None or dtype in dtypes) and re.search(options.ops, name)
    ][::-1]
    total = len(tasks)
    options.results.parent.mkdir(exist_ok=True)
    start = time.monotonic()
    workers = [Worker() for _ in range(min(options.jobs, max(total, 1)))]
    with options.results.open("a") as out:

        def keep(result):
            out.write(json.dumps(result) + "\n")
            out.flush()

        while tasks or any(w.task for w in workers):
            for w in workers:
                if not w.task and tasks:
                    w.give(tasks.pop())
            ready = select.select([w.process.stdout for w in workers], [], [], 1)[0]
            for i, w in enumerate(workers):
                if w.process.stdout in ready:
                    data = os.read(w.process.stdout.fileno(), 1 << 20)
                    w.buffer += data
                    if w.buffer.endswith(b"\n"):
                        result = json.loads(w.buffer)
                        w.task, w.buffer = None, b""
                        keep(result)
                        if result["kb"] > WORKER_KB:
                            w.end()
                            workers[i] = Worker()
                        continue
                    if data:
                        continue
                elif not w.task or time.monotonic() < w.deadline:
                    continue
                # It died, or hangs.
                task, status = w.task, w.end()
                if task:
                    why = f"the process died ({status})" if w.process.stdout in ready else "the process hung"
                    keep({"name": task["name"], "dtype": task["dtype"], "kinds": {}, "fallbacks": {}, "broken": why})
                workers[i] = Worker()
    for w in workers:
        w.end()
    print(f"{total} cases in {time.monotonic() - start:.0f} s: {options.results}")


def read(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def passes(result, kind):
    """Whether all samples of the kind agree; None if the case has none."""
    verdict = result["kinds"].get(kind)
    if verdict is None:
        return False if result["broken"] and kind == "forward" else None
    return verdict["ok"] == verdict["n"]


def counts(results, kind):
    verdicts = [v for r in results if (v := passes(r, kind)) is not None]
    return sum(verdicts), len(verdicts)


def share(ok, n):
    # Never rounded up to 100.
    return f"{int(1000 * ok / n) / 10:.1f} % ({ok}/{n})" if n else "-"


def groups(results):
    """Results of OpInfos by dtype, in the order of the file; those of modules apart."""
    by_dtype, modules = collections.defaultdict(list), []
    for r in results:
        if r["name"].startswith("module "):
            modules.append(r)
        else:
            by_dtype[r["dtype"]].append(r)
    return by_dtype, modules


def table_lines(results):
    sys.path.insert(0, str(ROOT / "tests"))
    from opinfo_checks import KINDS

    by_dtype, modules = groups(results)
    kinds = [k for k in KINDS if any(k in r["kinds"] for r in results)]
    yield "| dtype | " + " | ".join(kinds) + " |"
    yield "| --- |" + " --- |" * len(kinds)
    for dtype, group in by_dtype.items():
        yield f"| {dtype} | " + " | ".join(share(*counts(group, k)) for k in kinds) + " |"
    if modules:
        yield "| ModuleInfos | " + " | ".join(share(*counts(modules, k)) for k in kinds) + " |"


def sample_counts(results, kind):
    verdicts = [r["kinds"][kind] for r in results if kind in r["kinds"]]
    return sum(v["ok"] for v in verdicts), sum(v["n"] for v in verdicts)


def with_fallback(results):
    touched = collections.defaultdict(set)
    for r in results:
        for op in r["fallbacks"]:
            touched[r["name"]].add(op)
    return dict(sorted(touched.items()))


def table(options):
    results = read(options.results)
    print("\n".join(table_lines(results)))
    for kind in ("forward", "error"):
        ok, n = sample_counts(results, kind)
        print(f"{kind}: {share(ok, n)} of all samples")
    names = {r["name"] for r in results}
    fallbacks = with_fallback(results)
    print(f"touch the CPU: {share(len(fallbacks), len(names))}")
    seconds, compiles = (sum(r.get(what, 0) for r in results) for what in ("seconds", "compiles"))
    print(f"{seconds:.0f} s of work, {compiles} compiles")
    if options.failures is None:
        return
    for r in results:
        if not re.search(options.failures, r["name"]):
            continue
        if r["broken"]:
            print(f"{r['name']} {r['dtype']} BROKEN {r['broken']}")
        for kind, v in r["kinds"].items():
            if options.kinds and kind not in options.kinds.split(","):
                continue
            if v["ok"] < v["n"]:
                f = v["failures"][0]
                print(f"{r['name']} {r['dtype']} {kind} {v['ok']}/{v['n']} [{f['sample']}] {f['what']}: {f['text']}")


def page(options):
    """Writes docs/opinfo.md from the results, with what of all cases they are."""
    sys.path.insert(0, str(ROOT / "tests"))
    from opinfo_checks import KINDS
    from opinfo_checks import tasks as all_tasks
    from opinfo_reasons import reason

    results = read(options.results)
    fallbacks = with_fallback(results)
    names = {r["name"] for r in results}
    lines = [
        "# OpInfo",
        "",
        "OpInfos and ModuleInfos of PyTorch's `torch.testing._internal`, run on the device and on the CPU and "
        "compared: values, within the OpInfo's",
        "own tolerances (or as near to double precision as the CPU is), dtypes, shapes, strides, what results alias, "
        "exceptions. A cell counts",
        "the OpInfos all of whose samples agree. What the CPU cannot do itself does not count. Written by "
        "`tools/sweep.py page` from a run of `tools/sweep.py run`.",
        "",
        f"**This run: {len(results)} of {len(all_tasks())} cases** (an OpInfo or ModuleInfo with one dtype), at most "
        f"{' or '.join(sorted({str(r.get('samples') or 'all') for r in results}))} distinct samples each. What was "
        "not run is in no figure below.",
        "",
        "Also taken as agreeing: random results of the same shape and dtype whose mean is one that other seeds give; "
        "other places of equal elements",
        "(sort, topk, median, mode); the functional result where the CPU's out= form or its form for views with the "
        "neg bit gives another.",
        "",
        *(f"- **{kind}**: {text}" for kind, text in KINDS.items()),
        "",
        *table_lines(results),
        "",
        "Of all samples: "
        + ", ".join(
            f"{kind} {share(*sample_counts(results, kind))}" for kind in KINDS if sample_counts(results, kind)[1]
        )
        + ".",
        "",
        f"## On the CPU: {share(len(fallbacks), len(names))}",
        "",
        "These call an op that runs on the CPU, in at least one of their samples, forms or derivatives.",
        "",
        "| OpInfo | ops |",
        "| --- | --- |",
        *(f"| {name} | {', '.join(f'`{op}`' for op in sorted(ops))} |" for name, ops in fallbacks.items()),
        "",
        "## What does not agree",
        "",
        "| OpInfo | dtypes and kinds | samples | reason, or what the first sample says |",
        "| --- | --- | --- | --- |",
    ]
    failing = collections.defaultdict(list)
    for r in results:
        if r["broken"]:
            failing[r["name"]].append((r["dtype"], "all", "-", reason(r["name"], r["dtype"], "") or r["broken"]))
        for kind, v in r["kinds"].items():
            if v["ok"] < v["n"]:
                first = v["failures"][0]
                said = f"{first['what']}: {first['text'][:120]}".replace("|", "/").replace("<", "&lt;")
                count = f"{v['ok']}/{v['n']}"
                failing[r["name"]].append((r["dtype"], kind, count, reason(r["name"], r["dtype"], kind) or said))
    for name, cases in failing.items():
        told = collections.defaultdict(list)
        for dtype, kind, count, why in cases:
            told[kind, why].append((dtype, count))
        for (kind, why), which in told.items():
            dtypes = ", ".join(dtype for dtype, _ in which)
            lines.append(f"| {name} | {kind}: {dtypes} | {', '.join(count for _, count in which)} | {why} |")
    PAGE.write_text("\n".join(lines) + "\n")
    print(f"{PAGE}: {len(failing)} of {len(names)} do not agree in all kinds")


def main():
    if sys.argv[1:] == ["worker"]:
        return worker()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table", "page"])
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--ops", default="")
    parser.add_argument("--dtypes")
    parser.add_argument("--kinds")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--failures", nargs="?", const="")
    options = parser.parse_args()
    return {"run": run, "table": table, "page": page}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
