"""A small convolutional network learns scikit-learn's 8x8 images of handwritten digits, on the device and on the CPU.

    python examples/digits_cnn.py [device]

Writes demo_out/digits.png: loss and step time of both runs.
"""

import pathlib
import statistics
import sys
import time

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

EPOCHS = 8
BATCH = 64
ACCURACY = 0.97
LOSS_DIFFERENCE = 0.05  # dropout draws other numbers on each device
OUT = pathlib.Path(__file__).resolve().parent.parent / "demo_out"


class Net(nn.Module):
    """Images (n, 1, 8, 8) to logits (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(64, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images))


def data() -> tuple[TensorDataset, TensorDataset]:
    """1437 images to learn from and 360 to test with, each (1, 8, 8) in [0, 1], and their digits."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    train, test = train_test_split(range(len(labels)), test_size=360, random_state=0, stratify=digits.target)
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def train(device: str) -> tuple[list[float], list[float], float]:
    """Trains from a fixed seed. Returns the loss and the seconds of each step, and the accuracy on the test images."""
    torch.manual_seed(0)
    learn, test = data()
    model = Net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(learn, BATCH, shuffle=True, generator=torch.Generator().manual_seed(0))
    losses, seconds = [], []
    with tqdm(total=EPOCHS * len(loader), desc=f"digits on {device}", unit="step") as bar:
        for _ in range(EPOCHS):
            for images, labels in loader:
                start = time.perf_counter()
                loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                seconds.append(time.perf_counter() - start)
                bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
                bar.update()
    model.eval()
    with torch.no_grad():
        images, labels = test.tensors
        correct = (model(images.to(device)).argmax(1) == labels.to(device)).float().mean().item()
    return losses, seconds, correct


def plot(runs: dict[str, tuple[list[float], list[float], float]]) -> pathlib.Path:
    """Loss curves and step times of the runs, by device, as a PNG. Returns its path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for device, (losses, seconds, accuracy) in runs.items():
        style = "--" if device == "cpu" else "-"
        left.plot(losses, style, label=f"{device}: {accuracy:.1%} of the test images right")
        right.plot(
            [1000 * s for s in seconds],
            style,
            label=f"{device}: median {1000 * statistics.median(seconds):.1f} ms",
        )
    for axes, name in ((left, "loss"), (right, "step time in ms")):
        axes.set(xlabel="step", ylabel=name, yscale="log")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle("scikit-learn digits, CNN with batch norm, AdamW")
    figure.tight_layout()
    OUT.mkdir(exist_ok=True)
    path = OUT / "digits.png"
    figure.savefig(path, dpi=120)
    return path


def run(device: str = "tpu") -> None:
    """Trains on the device and on the CPU.

    Raises:
        AssertionError: the device's accuracy is below ACCURACY, or it learns otherwise than the CPU.
    """
    runs = {name: train(name) for name in dict.fromkeys((device, "cpu"))}
    for name, (losses, seconds, accuracy) in runs.items():
        print(
            f"{name:>4}: {accuracy:.1%} of the test images right, last loss {losses[-1]:.4f}, "
            f"first step {seconds[0]:.2f} s, median step {1000 * statistics.median(seconds):.1f} ms"
        )
    print(f"curves: {plot(runs)}")
    assert runs[device][2] >= ACCURACY, f"expected an accuracy of at least {ACCURACY:.0%}"
    last = {name: statistics.mean(losses[-len(losses) // EPOCHS :]) for name, (losses, _, _) in runs.items()}
    assert abs(last[device] - last["cpu"]) < LOSS_DIFFERENCE, f"mean losses of the last epoch: {last}"


if __name__ == "__main__":
    run(*sys.argv[1:])
