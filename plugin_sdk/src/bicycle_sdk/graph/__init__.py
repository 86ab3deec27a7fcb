"""The job graph as frozen data, with conversion to and from JSON.

A graph consists of vertices (operators) and edges (partitioning of records). It holds no function:
objects of the user are named by *payload roles* (``"function"``, ``"output_type"``, …); the live
object or its bytes are stored beside the graph under the id ``"<vertex id>/<role>"``. Building or
reading a graph runs nothing.
"""

from bicycle_sdk.graph.job_graph import JobGraph, graph_from_dict, graph_to_dict
from bicycle_sdk.graph.json_fields import GRAPH_SDK_VERSION
from bicycle_sdk.graph.kinds import (
    Inputs,
    KindDescriptor,
    OperatorKind,
    Partitioning,
    StateShape,
    descriptor_of,
)
from bicycle_sdk.graph.parts import (
    KEY_GROUP_COUNT_MAX,
    Edge,
    ErrorAction,
    ErrorPolicy,
    JobConfig,
    RestartKind,
    RestartStrategy,
    RuntimeMode,
    Vertex,
)

__all__ = [
    "GRAPH_SDK_VERSION",
    "KEY_GROUP_COUNT_MAX",
    "Edge",
    "ErrorAction",
    "ErrorPolicy",
    "Inputs",
    "JobConfig",
    "JobGraph",
    "KindDescriptor",
    "OperatorKind",
    "Partitioning",
    "RestartKind",
    "RestartStrategy",
    "RuntimeMode",
    "StateShape",
    "Vertex",
    "descriptor_of",
    "graph_from_dict",
    "graph_to_dict",
]
