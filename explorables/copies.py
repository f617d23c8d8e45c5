"""Copies of the notebooks for a user to change: new ones appear, changed ones are never overwritten."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

_RECORD = ".attnlab.json"  # which text each copy had when we wrote it


@dataclass
class Copies:
    """What `fresh_copies` did, by file name."""

    new: list[str] = field(default_factory=list)
    """Copied for the first time, or again after the user removed the copy."""
    updated: list[str] = field(default_factory=list)
    """Untouched copies of an older version, replaced."""
    kept: list[str] = field(default_factory=list)
    """Changed by the user, or not from us at all; left alone."""

    def text(self, folder: Path) -> str:
        """What a user wants to know about it."""
        lines = [f"Your notebooks are in {folder}"]
        if self.new:
            lines.append(f"  new: {', '.join(self.new)}")
        if self.updated:
            lines.append(f"  updated (you had not changed them): {', '.join(self.updated)}")
        if self.kept:
            lines.append(f"  kept as you changed them: {', '.join(self.kept)}")
            lines.append("  For a fresh copy rename yours and run `attnlab lab` again.")
        return "\n".join(lines)


def fresh_copies(source: Path, folder: Path) -> Copies:
    """Copy the notebooks of `source` to `folder`, except where the user has changed a copy.

    Raises:
        ValueError: if there are no notebooks, or `folder` can't be written or is not a folder.
    """
    notebooks = sorted(source.glob("*.ipynb"))
    if not notebooks:
        raise ValueError(f"expected notebooks (*.ipynb) in {source}, found none")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        record = _read_record(folder / _RECORD)
        copies = Copies()
        for notebook in notebooks:
            content, copy = notebook.read_bytes(), folder / notebook.name
            if not copy.exists():
                copies.new.append(copy.name)
            elif (present := _digest(copy.read_bytes())) == _digest(content):
                record[copy.name] = present
                continue
            elif record.get(copy.name) == present:
                copies.updated.append(copy.name)
            else:
                copies.kept.append(copy.name)
                continue
            copy.write_bytes(content)
            record[copy.name] = _digest(content)
        (folder / _RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ValueError(f"expected a folder for your notebooks that I can write to: {error}") from error
    return copies


def _read_record(path: Path) -> dict[str, str]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}  # then every copy that differs counts as changed
    return record if isinstance(record, dict) else {}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
