"""Checks that the C++ folders include each other in one direction only, and that only tpu/torch includes torch.

python tools/check_includes.py [root]     prints one line for each include that may not be, exit status 1 if any
"""

import pathlib
import re
import sys

# A folder of tpu/ -> the others that it may include (itself always).
MAY_INCLUDE = {
    "ir": set(),
    "pjrt": set(),
    "ops": {"ir"},
    "runtime": {"ir", "pjrt"},
    "torch": {"ir", "ops", "pjrt", "runtime"},
}
TORCH = re.compile(r"^(ATen|c10|torch|torch/csrc|pybind11|Python\.h)(/|$)")
# 18 s and 1.5 GB for each file that includes it.
FORBIDDEN = {"torch/extension.h", "torch/all.h", "torch/torch.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)


def problems(root: pathlib.Path) -> list[str]:
    """One line for each include below root/tpu that may not be: file, line, and the rule."""
    found = []
    for path in sorted((root / "tpu").rglob("*")):
        if path.suffix not in {".h", ".cc", ".cpp", ".hpp", ".inc"}:
            continue
        folder = path.relative_to(root / "tpu").parts[0]
        text = path.read_text()
        for match in INCLUDE.finditer(text):
            if why := objection(folder, match.group(1)):
                line = text.count("\n", 0, match.start(1)) + 1
                found.append(f"{path.relative_to(root)}:{line}: {why}")
    return found


def objection(folder: str, included: str) -> str | None:
    """Why a file of tpu/<folder> may not include this, or None."""
    if included in FORBIDDEN:
        return f"{included} is never included: it takes 18 s to compile, name the headers that are needed"
    # The C++ tests beside the code are programs of their own.
    if folder not in MAY_INCLUDE:
        return None
    if folder != "torch" and TORCH.match(included):
        return f"only tpu/torch includes torch and Python, but here is {included}"
    if match := re.match(r"tpu/(\w+)/", included):
        other = match.group(1)
        if other != folder and other not in MAY_INCLUDE[folder]:
            return f"tpu/{folder} does not include tpu/{other} ({included})"
    return None


def main(root: str = ".") -> int:
    """Prints the problems below root; returns the exit status."""
    lines = problems(pathlib.Path(root))
    print("\n".join(lines), end="\n" if lines else "")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
