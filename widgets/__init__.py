"""Views and explorables for notebooks: `from attnlab.widgets import AttentionExplorable`."""

from attnlab.widgets.trace_view import TraceView
from attnlab.widgets.control_bar import ControlBar
from attnlab.widgets.explorable import Explorable
from attnlab.widgets.attention import AttentionExplorable
from attnlab.widgets.code import CodeExplorable, explore, four_mistakes
from attnlab.widgets.dropout import DropoutExplorable
from attnlab.widgets.layout import LayoutExplorable
from attnlab.widgets.projection import ProjectionExplorable
from attnlab.widgets.scaling import ScalingExplorable
from attnlab.widgets.heads import HeadSplitExplorable
from attnlab.widgets.magic import load_ipython_extension

__all__ = [
    "AttentionExplorable",
    "CodeExplorable",
    "ControlBar",
    "DropoutExplorable",
    "Explorable",
    "HeadSplitExplorable",
    "LayoutExplorable",
    "ProjectionExplorable",
    "ScalingExplorable",
    "TraceView",
    "explore",
    "four_mistakes",
    "load_ipython_extension",
]
