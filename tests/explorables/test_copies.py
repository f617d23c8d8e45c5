"""Copies of the notebooks: new ones appear, untouched ones follow, changed ones are never overwritten."""

from pathlib import Path

import pytest

from attnlab.explorables.copies import Copies, fresh_copies


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.ipynb").write_text(f"{name}, version 1")
    return folder


def read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("*.ipynb")}


def test_changed_copies_are_kept_and_untouched_ones_follow(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    assert fresh_copies(source, folder) == Copies(new=["one.ipynb", "two.ipynb"])
    assert read(folder) == read(source)

    (folder / "one.ipynb").write_text("my own")
    for name in ("one", "two"):
        (source / f"{name}.ipynb").write_text(f"{name}, version 2")
    report = fresh_copies(source, folder)
    assert report == Copies(updated=["two.ipynb"], kept=["one.ipynb"])
    assert read(folder) == {"one.ipynb": "my own", "two.ipynb": "two, version 2"}
    assert "kept as you changed them: one.ipynb" in report.text(folder)

    (folder / "one.ipynb").rename(folder / "mine.ipynb")
    assert fresh_copies(source, folder) == Copies(new=["one.ipynb"])
    assert read(folder) == {**read(source), "mine.ipynb": "my own"}


def test_a_file_of_the_same_name_is_kept_whoever_wrote_it(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    folder.mkdir()
    (folder / "one.ipynb").write_text("somebody else's")
    assert fresh_copies(source, folder) == Copies(new=["two.ipynb"], kept=["one.ipynb"])
    # Also where it can't be known any more what was copied.
    (folder / ".attnlab.json").write_text("[1")
    (source / "two.ipynb").write_text("two, version 2")
    assert fresh_copies(source, folder) == Copies(kept=["one.ipynb", "two.ipynb"])
    assert read(folder) == {"one.ipynb": "somebody else's", "two.ipynb": "two, version 1"}


def test_a_folder_that_is_none_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected notebooks \(\*\.ipynb\) in .*, found none"):
        fresh_copies(tmp_path, tmp_path / "copies")
    with pytest.raises(ValueError, match="expected a folder for your notebooks that I can write to"):
        fresh_copies(source, source / "one.ipynb")
