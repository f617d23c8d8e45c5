"""Settings of all tests: reproducible property tests and run-time checked annotations of the engine."""

import os
import sys

import torch
from hypothesis import HealthCheck, settings
from jaxtyping import config, install_import_hook

# The import hook looks the type checker up by its dotted name.
import helpers.annotations  # noqa: F401

if "attnlab.engine" in sys.modules:
    raise RuntimeError("attnlab.engine was imported before its annotations could be checked")
install_import_hook("attnlab.engine", "helpers.annotations.check")

# Off until a test asks for it (tests/engine does, always): a widget meets the refusals of the engine as its
# users do, where no hook stands in front of them.
config.update("jaxtyping_disable", True)

# Exact comparisons are about the mathematics, not about how many threads share a sum.
torch.set_num_threads(1)

# A warning of torch is an error (pyproject.toml) in each test that causes it, not only in the first.
torch.set_warn_always(True)

# `ci` is the default: the same examples on every machine, and no test that fails because the machine is busy.
# HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", deadline=None, database=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
