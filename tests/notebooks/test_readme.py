"""The Python of the README runs, from top to bottom, and gives what stands beside it."""

import re
from pathlib import Path

import torch

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_python_of_the_readme() -> None:
    # What it takes from its reader.
    names: dict[str, object] = {
        name: torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        for seed, name in enumerate("qkv")
    }
    names["my_attention"] = lambda q, k, v: (q @ k.mT / 2).softmax(-1) @ v
    told = 0
    for block in re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE):
        # A cell without its magic, which test_magic.py tests.
        exec(re.sub(r"\A%%.*\n", "", block), names)
        for expression, said in re.findall(r"^(.+)  # ('.+')$", block, re.MULTILINE):
            assert repr(eval(expression, names)) == said
            told += 1
    assert told
