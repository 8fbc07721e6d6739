"""Why an OpInfo or a ModuleInfo that does not agree with the CPU does not: the reasons that docs/opinfo.md gives."""

import re

# (name, dtype, kind) as regular expressions, and the reason. The first that fits counts.
REASONS = [
    (r"^chalf$", "", "", "complex numbers of 16-bit floats have no element type in StableHLO"),
    (
        r"^(complex|view_as_complex)$",
        "float16",
        "",
        "complex numbers of 16-bit floats have no element type in StableHLO",
    ),
    (r"^(to_sparse|sparse\.)", "", "", "sparse tensors have no representation on the device yet"),
    (
        r"^(geqrf|lu_solve|ormqr|qr|triangular_solve)$",
        "",
        "out",
        "runs on the CPU: results and an out= tensor that was resized come back in row-major order",
    ),
    (
        r"^module nn\.(Lazy)?Conv(Transpose)?3d$",
        "",
        "gradient",
        "rounding: as near to float64 as the CPU (1.2 times its error in a check by hand)",
    ),
    (r"^logcumsumexp$", "complex", "", "the scan is of real numbers only"),
    (r"^vdot$", "complex", "", "a 0-d result that the CPU returns with the conj bit set"),
    (r"^argsort$", "", "", "unstable: equal elements may come in any order"),
    (
        r"^(native_layer_norm|native_batch_norm|_native_batch_norm_legit|_batch_norm_with_update)$",
        "float16",
        "",
        "statistics of 16-bit inputs are saved as float32, as Meta kernels say; the CPU saves some as 16 bits",
    ),
    (r"^_native_batch_norm_legit$", "", "", "PyTorch's decomposition of it saves statistics in evaluation, too"),
    (r"^addbmm$", "", "inplace", "the CPU resizes self to the broadcast shape; the Meta kernel refuses that"),
    (r"^narrow_copy$", "", "error", "the CPU has a kernel and words of its own, other devices PyTorch's common one"),
    (
        r"^(masked_fill|multinomial|stft)$",
        "",
        "error",
        "the right exception type; the data is looked at later, or the tensor type has another name",
    ),
]


def reason(name: str, dtype: str, kind: str) -> str | None:
    """The reason why this case fails, or None if none is known."""
    for pattern, dtypes, kinds, text in REASONS:
        if re.search(pattern, name) and re.search(dtypes, dtype) and re.search(kinds, kind):
            return text
    return None
