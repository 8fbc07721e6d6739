"""Why an OpInfo or a ModuleInfo that does not agree with the CPU does not: the reasons that docs/opinfo.md gives."""

import re

# (name, dtype, kind) as regular expressions, and the reason. The first that fits counts.
REASONS = [
    (r"^chalf$", "", "", "complex numbers of 16-bit floats have no element type in StableHLO"),
    (r"^(to_sparse|sparse\.)", "", "", "sparse tensors have no representation on the device yet"),
    (
        r"^(pca_lowrank|svd_lowrank)$",
        "",
        "",
        "the singular vectors of a random projection are determined up to their signs, and the projection is random",
    ),
]


def reason(name: str, dtype: str, kind: str) -> str | None:
    """The reason why this case fails, or None if none is known."""
    for pattern, dtypes, kinds, text in REASONS:
        if re.search(pattern, name) and re.search(dtypes, dtype) and re.search(kinds, kind):
            return text
    return None
