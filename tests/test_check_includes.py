"""The script that holds the include directions."""

import subprocess
import sys

from conftest import ROOT


def check(root):
    return subprocess.run([sys.executable, ROOT / "tools/check_includes.py", root], capture_output=True, text=True)


def test_the_tree_is_clean():
    done = check(ROOT)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_may_not_be_included_is_named_with_its_line(tmp_path):
    files = {
        "ir/a.h": '#include "tpu/ops/op.h"\n',
        "pjrt/b.cc": '#include <vector>\n#include "tpu/ir/type.h"\n',
        "ops/c.cc": '#include "tpu/ir/type.h"\n#include <ATen/ATen.h>\n',
        "runtime/d.cc": '#include "tpu/pjrt/client.h"\n#include "tpu/torch/x.h"\n',
        "torch/e.cc": '#include "tpu/runtime/cache.h"\n#include <torch/library.h>\n#  include <torch/extension.h>\n',
    }
    for name, text in files.items():
        path = tmp_path / "tpu" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    done = check(tmp_path)
    assert done.returncode == 1
    assert [line.rsplit(":", 1)[0].split(": ")[0] for line in done.stdout.splitlines()] == [
        "tpu/ir/a.h:1",
        "tpu/ops/c.cc:2",
        "tpu/pjrt/b.cc:2",
        "tpu/runtime/d.cc:2",
        "tpu/torch/e.cc:3",
    ]
