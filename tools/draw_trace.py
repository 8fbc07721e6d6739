"""Draws a Chrome trace of torch.profiler as a picture: one row for each thread and each row of a device.

python tools/draw_trace.py docs/trace.png                    a training step that is recorded now
python tools/draw_trace.py PICTURE.png TRACE.json            any trace that export_chrome_trace() wrote
"""

import argparse
import collections
import json
import pathlib
import tempfile

COLOURS = {
    "cpu_op": "#b8c4d6",
    "user_annotation": "#e9e2c8",
    "gpu_user_annotation": "#e9e2c8",
    "privateuse1_runtime": "#7d93b5",
    "compile": "#c8553d",
    "wait": "#dddddd",
    "kernel": "#2a6f4e",
    "gpu_memcpy": "#d9a441",
}
WORDS = {
    "cpu_op": "op",
    "privateuse1_runtime": "call of PJRT",
    "compile": "compile",
    "wait": "wait",
    "kernel": "run on the device",
    "gpu_memcpy": "copy",
    "user_annotation": "record_function",
}


def record(path: str) -> None:
    """Writes the trace of one training step, in which one op is called for the first time."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512)).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(512, 512)

    def step(measure=torch.Tensor.item) -> None:
        with record_function("forward"):
            loss = model(data.to("tpu")).square().mean()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
        with record_function("read the loss"):
            measure(loss)

    for _ in range(3):
        step()
    torch.tpu.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
        step(lambda loss: loss.log10().item())
    prof.export_chrome_trace(path)


def kind(event: dict) -> str:
    """The key of COLOURS for an event."""
    if event["name"] in ("PJRT_Client_Compile", "PJRT_Executable_DeserializeAndLoad"):
        return "compile"
    return "wait" if event["name"] == "PJRT_Event_Await" else event["cat"]


def draw(trace: str, picture: str) -> None:
    """Draws the trace at that path into a PNG or SVG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    events = json.loads(pathlib.Path(trace).read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    shown = [e for e in events if e["ph"] == "X" and e.get("cat") in COLOURS]
    start = min(e["ts"] for e in shown)

    rows = collections.defaultdict(list)
    for e in sorted(shown, key=lambda e: (e["ts"], -e["dur"])):
        rows[e["pid"], e["tid"]].append(e)
    # Threads first, then the devices' rows; spans that lie in others go below them.
    order = sorted(rows, key=lambda r: (str(processes.get(r[0], "")).startswith("tpu"), r[0], r[1]))
    figure, axes = pyplot.subplots(figsize=(13, 5.2), dpi=110)
    y, ticks, position = 0.0, [], {}
    for row in order:
        open_ends, top, depth = [], y, 0
        for e in rows[row]:
            while open_ends and open_ends[-1] <= e["ts"] + 0.001:
                open_ends.pop()
            level = y + len(open_ends)
            depth = max(depth, len(open_ends) + 1)
            open_ends.append(e["ts"] + e["dur"])
            left, width = (e["ts"] - start) / 1000, e["dur"] / 1000
            axes.barh(level, width, 0.9, left, color=COLOURS[kind(e)], edgecolor="white", linewidth=0.3, align="edge")
            if kind(e) in ("kernel", "gpu_memcpy") or e["cat"] == "privateuse1_runtime":
                position[e["args"].get("correlation"), e["cat"] == "privateuse1_runtime"] = (left, level + 0.45)
            text = e["name"].removeprefix("XLA ").removeprefix("PJRT_")
            if width * 90 > len(text) * (axes_width := (max(x["ts"] + x["dur"] for x in shown) - start) / 1000):
                axes.text(left + width / 2, level + 0.45, text, ha="center", va="center", fontsize=6.5, clip_on=True)
        name = names.get(row, str(row[1]))
        if processes.get(row[0], "").startswith("tpu"):
            name = f"{processes[row[0]]}\n{name}"
        ticks.append((top + depth / 2, name))
        y += depth + 0.8
    for (correlation, is_call), (left, level) in position.items():
        if is_call and (to := position.get((correlation, False))):
            axes.plot([left, to[0]], [level, to[1]], color="#2a6f4e", linewidth=0.35, alpha=0.6)
    axes.set_yticks([t for t, _ in ticks], [n for _, n in ticks], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_xlim(0, axes_width)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    found = {kind(e) for e in shown}
    axes.legend(
        handles=[Patch(color=COLOURS[k], label=word) for k, word in WORDS.items() if k in found],
        loc="upper center",
        bbox_to_anchor=(0.5, 1.08),
        ncol=len(found),
        fontsize=7,
        frameon=False,
    )
    figure.tight_layout()
    figure.savefig(picture)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture")
    parser.add_argument("trace", nargs="?")
    arguments = parser.parse_args()
    if arguments.trace:
        draw(arguments.trace, arguments.picture)
        return
    with tempfile.TemporaryDirectory() as folder:
        record(f"{folder}/trace.json")
        draw(f"{folder}/trace.json", arguments.picture)


if __name__ == "__main__":
    main()
