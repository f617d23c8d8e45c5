"""Notebooks that are measured against: the obvious alternative, and the least that Voilà can show."""

from pathlib import Path

import nbformat

DEFAULT = "from attnlab.widgets import AttentionExplorable\n\nAttentionExplorable()"

BIG = """
import torch
from attnlab.widgets import AttentionExplorable

torch.manual_seed(0)
AttentionExplorable(**{name: torch.randn(16, 16).clamp(-9, 9) for name in "qkv"})
"""

# The panel of a chosen number is open: each move is recorded and explained too.
PANEL = """
from attnlab.widgets import AttentionExplorable

explorable = AttentionExplorable()
explorable.view.selected = {"stage": "scores", "index": [0, 0]}
explorable
"""

LARGEST = """
from attnlab.widgets import HeadSplitExplorable

HeadSplitExplorable(batch=4, time=8, width=24, heads=8)
"""

SCALING = "from attnlab.widgets import ScalingExplorable\n\nScalingExplorable()"

TRIVIAL = "import ipywidgets\n\nipywidgets.FloatText(1.0)"

# The least that an update can be: as many numbers on the page as the default of attention has, as many of
# them change, and nothing is computed, coloured, linked or checked. What this takes is the way from the
# browser to the kernel and back, and the browser's own work for six numbers.
BARE = """
import struct

import anywidget
import traitlets as t


class Bare(anywidget.AnyWidget):
    _esm = \"\"\"
    export default {
      render({model, el}) {
        const table = document.createElement("table");
        const cells = Array.from({length: 9}, () => table.insertRow())
          .flatMap((row) => Array.from({length: 9}, () => row.insertCell()));
        el.append(table);
        const paint = () => {
          const bytes = model.get("numbers");
          cells.forEach((cell, i) => {
            const text = bytes.getFloat64(8 * i, true).toFixed(4);
            if (cell.textContent !== text) cell.textContent = text;
          });
        };
        model.on("change:numbers", paint);
        paint();
        table.className = "bare";
        table.onclick = () => {
          model.set("pressed", model.get("pressed") + 1);
          model.save_changes();
        };
      },
    };
    \"\"\"
    pressed = t.Int(0).tag(sync=True, echo_update=False)
    numbers = t.Bytes(struct.pack("<81d", *range(81))).tag(sync=True)

    @t.observe("pressed")
    def _press(self, change):
        self.numbers = struct.pack("<81d", *(n + 0.1 * (n < 6) * change["new"] for n in range(81)))


Bare()
"""

# The same matrices of the same default, drawn the usual way.
ALTERNATIVE = """
%matplotlib inline
import matplotlib.pyplot as plt
import torch
from ipywidgets import FloatText, interact


@interact(x=FloatText(1.0, continuous_update=True))
def draw(x):
    q = torch.tensor([[x, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    k = v = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    scores = q @ k.mT
    scaled = scores / 2**0.5
    masked = scaled.masked_fill(~torch.ones(3, 3, dtype=torch.bool).tril(), -torch.inf)
    weights = masked.softmax(-1)
    output = weights @ v
    figure, axes = plt.subplots(2, 4, figsize=(10, 4))
    named = {"q": q, "k": k, "v": v, "scores": scores, "scaled": scaled, "masked": masked, "weights": weights}
    for ax, (name, matrix) in zip(axes.flat, {**named, "output": output}.items()):
        ax.imshow(matrix)
        ax.set_title(name)
        for i, row in enumerate(matrix.tolist()):
            for j, number in enumerate(row):
                ax.text(j, i, f"{number:.4f}", ha="center", va="center")
    plt.show()
"""


def write_notebook(path: Path, source: str) -> None:
    """A notebook of one title and one cell; an empty source is the default explorable."""
    title = nbformat.v4.new_markdown_cell(f"# {path.stem}\n\nA page to be measured.")
    cell = nbformat.v4.new_code_cell(source.strip() or DEFAULT)
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[title, cell], metadata=kernel), path)
