"""The list of explorables: addresses of any file name, and notebooks that are none."""

import json
from pathlib import Path

import pytest

from attnlab.explorables.catalogue import NOTEBOOKS, Catalogue
from helpers.own_notebooks import write


def test_addresses_that_were_given_out_stay() -> None:
    addresses = [explorable.address for explorable in Catalogue.of(NOTEBOOKS)]
    assert addresses == ["attention", "scaling", "dropout", "projections", "heads", "memory", "your-code"]


def test_an_address_holds_any_name(tmp_path: Path) -> None:
    write(tmp_path, "02-für alle v1.5?", "For all")
    (explorable,) = Catalogue.of(tmp_path)
    assert explorable.address == "f%C3%BCr%20alle%20v1.5%3F"
    assert Catalogue.of(tmp_path).find("für alle v1.5?") == explorable


def test_order_decides_where_it_is_a_number(tmp_path: Path) -> None:
    write(tmp_path, "a", "Last")
    write(tmp_path, "b", "Second", order=2.5)
    write(tmp_path, "c", "First", order=1)
    assert [explorable.title for explorable in Catalogue.of(tmp_path)] == ["First", "Second", "Last"]


@pytest.mark.parametrize("order", ["first", True, [1], float("nan")])
def test_an_order_that_is_no_number_names_the_file(tmp_path: Path, order: object) -> None:
    write(tmp_path, "odd", "Odd", order=order)
    with pytest.raises(ValueError, match=r'expected a number as "order" in the metadata of odd\.ipynb, got'):
        Catalogue.of(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        b"\xff",
        [],
        3,
        {},
        {"cells": 3},
        {"cells": [3]},
        {"cells": [{"cell_type": "markdown"}]},
        {"cells": [], "metadata": []},
        {"cells": [], "metadata": {"attnlab": "first"}},
    ],
    ids=str,
)
def test_what_is_no_notebook_is_named(tmp_path: Path, content: object) -> None:
    path = tmp_path / "odd.ipynb"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(ValueError, match=r"expected a Jupyter notebook in odd\.ipynb, got"):
        Catalogue.of(tmp_path)
