"""Random programs of views and writes; more of them: `python tests/fuzz_views.py [first seed] [number]`."""

import pytest
from fuzz_views import Program


@pytest.mark.parametrize("seed", range(0, 80, 8))
@pytest.mark.filterwarnings("ignore")
def test_random_views_and_writes_are_as_on_the_cpu(seed):
    for s in range(seed, seed + 4):
        Program(s).run(10)
