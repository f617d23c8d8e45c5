"""Views and explorables for notebooks: `from attnlab.widgets import AttentionExplorable`."""

from attnlab.widgets.trace_view import TraceView
from attnlab.widgets.control_bar import ControlBar
from attnlab.widgets.explorable import Explorable
from attnlab.widgets.attention import AttentionExplorable

__all__ = ["AttentionExplorable", "ControlBar", "Explorable", "TraceView"]
