"""Every kept input, and inputs that differ a little from them: all targets keep their promises (`make fuzz-long`)."""

from __future__ import annotations

from itertools import islice

import pytest

from fuzz.corpus import FOLDER, MOST_BYTES, kept, mutated
from fuzz.long import RUNS
from fuzz.targets import TARGETS, Target

MUTATED = {"http": 100}  # others are faster
SEED = 1


@pytest.mark.parametrize("target", TARGETS)
def test_kept_inputs_and_their_variants_keep_the_promises(target: str) -> None:
    inputs = kept(target)
    assert inputs
    with TARGETS[target]() as function:
        for data in (*inputs, *islice(mutated(inputs, SEED), MUTATED.get(target, 1_500))):
            function(data)


def test_every_target_has_a_corpus_of_small_inputs_and_a_share_of_the_long_run() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == TARGETS.keys() == RUNS.keys()
    assert sum(RUNS.values()) >= 10_000_000
    for target in TARGETS:
        inputs = kept(target)
        assert len(set(inputs)) == len(inputs)
        assert max(map(len, inputs)) <= MOST_BYTES


@pytest.mark.parametrize(
    ("target", "data"),
    [
        ("framing", b"\x00\x81\x01\x81\x01\x81\x01"),
        ("bus", b"\x00" + b"\xdd\xff\xff\xff\xff"),
        ("codec", b"[" * 2_000),
        ("http", b"OPTIONS * HTTP/1.0\r\n\r\n"),
    ],
)
def test_single_inputs_that_once_were_odd(target: str, data: bytes) -> None:
    with TARGETS[target]() as function:
        function(data)


def test_a_target_finds_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A framing that loses the rest of a read is found by the kept inputs."""
    from greendot.transport.websocket import Framing

    whole = Framing.feed

    def lossy(self: Framing, data: bytes) -> None:
        whole(self, data)
        self._rest = b""

    monkeypatch.setattr(Framing, "feed", lossy)
    with TARGETS["framing"]() as function:
        found = [data for data in kept("framing") if _fails(function, data)]
    assert found


def _fails(function: Target, data: bytes) -> bool:
    try:
        function(data)
    except AssertionError as error:
        return "depend on how the bytes arrive" in str(error)
    return False
