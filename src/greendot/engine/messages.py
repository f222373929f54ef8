"""What nodes ask each other, and answer, when somebody looks at the whole cluster."""

from __future__ import annotations

from msgspec import Struct


class NodeMessage(Struct, frozen=True, array_like=True, tag=True):
    """What nodes say to each other, as opposed to what the engine tells by itself."""


class ClusterQuestion(NodeMessage, frozen=True, tag="q"):
    """Somebody looks at the whole cluster: the topic's node says how it is there."""

    question: bytes
    asker: str  # the node to answer
    number: int


class ClusterAnswer(NodeMessage, frozen=True, tag="p"):
    """What a node answers to the topic's node."""

    number: int
    node: str
    answer: bytes
