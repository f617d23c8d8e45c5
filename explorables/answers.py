"""How a program of ours answers the server that started it: on a pipe that nothing else can write to."""

import os

__all__ = ["answers_only"]


def answers_only() -> int:
    """Standard output as a file descriptor of its own; what is printed goes with the complaints from now on.

    What a program imports or runs may print anything at any time, and a server would read that as an answer.
    """
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers
