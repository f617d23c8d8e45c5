"""The command refuses what it can't use, and says what it expected."""

import pytest

from attnlab.explorables.command import main


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not refused must not keep the tests waiting."""
    for start in ("_serve", "_lab"):
        monkeypatch.setattr(f"attnlab.explorables.command.{start}", lambda options: 0)


@pytest.mark.parametrize("minutes", ["0", "-5", "nan", "inf", "1e300", "ten"])
def test_idle_minutes_are_a_time(minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--idle-minutes", minutes])
    assert (
        f"expected minutes, more than 0 and at most 10080 (a week), got '{minutes}'"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("command", ["serve", "lab"])
def test_a_port_is_one_that_exists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--port", "70000"])
    assert "argument --port: expected a port from 0 to 65535, got '70000'" in capsys.readouterr().err
