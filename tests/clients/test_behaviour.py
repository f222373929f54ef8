"""Behaviour suite of clients/behaviour, run with both clients; and proof that the suite finds faulty clients."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from behaviour_driver.matching import matches
from behaviour_driver.run import Unmet
from behaviour_driver.script import BadScript, Script, load, load_all
from behaviour_driver.suite import Suite
from clients.javascript import CLIENTS, installed
from e2e.forking import fork

pytestmark = pytest.mark.timeout(180)

FOLDER = CLIENTS / "behaviour"
SCRIPTS = {script.name: script for script in load_all(FOLDER / "scripts")}
RUNNERS = {
    "javascript": ("node", str(FOLDER / "runners" / "javascript.mjs")),
    "python": (sys.executable, str(FOLDER / "runners" / "python.py")),
}
# Script → faults that it finds, each with the reason in the report.
FAULTS = {
    "connect": {"sends_twice": "unexpected .*hello"},
    "resume": {"forgets_session": "next hello frame|nothing matched"},
    "recover": {"fetches_little": "next message event is .*now"},
    "lost": {"hides_gaps": "nothing matched"},
    "once": {"repeats": "next message event is .*'seq': 1"},
    "send-once": {"new_keys": "answer was .*'seq': 2"},
    "refresh": {"never_refreshes": "unexpected .*4005"},
    "refresh-fails": {"gives_up": "next state event is .*closed"},
    "expired": {"greedy": "requested [34] tokens"},
    "typing-reports": {"types_always": r"sent \d\d typing.start", "types_once": "sent 1 typing.start"},
    "typing-ends": {"hides_typers": "ms after typing, expected 2500", "keeps_typers": "nothing matched"},
    "slow": {"loses": "next message event is|nothing matched"},
    "watch": {"forgets_watches": "nothing matched"},
    "crash": {"loses": "nothing matched"},
    "drain": {"loses": "nothing matched"},
    "hints": {"impatient": "next state event is .*waiting", "together": "the clients' retry_in_ms"},
    "retries": {"gives_up": "next state event is .*closed"},
    "refused": {"returns": "nothing matched|next state event is .*waiting"},
    "refused-hello": {"impatient": "ms after connect, expected 400"},
    "clock": {"local_time": r"off by (3\.\d+e.06|3600000) ms"},
    "clock-refresh": {"trusts_clock": "unexpected .*4005"},
    "unknown": {"strict": "unexpected .*waiting"},
    "silent": {"no_heartbeats": "nothing matched"},
    "delay": {"loses": "next message event is|nothing matched"},
}
FAULTY = [(script, fault, reason) for script, faults in FAULTS.items() for fault, reason in faults.items()]


class Stage:
    """Suite on the event loop of a thread. Runs begin when the first test needs one, and go on side by side."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._suite = Suite(fork)
        self._running: dict[tuple[str, ...], Future[None]] = {}
        self._submit(self._suite.__aenter__()).result(100)

    def close(self) -> None:
        for run in self._running.values():
            run.cancel()
        try:
            self._submit(self._suite.__aexit__()).result(100)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def begin(self, script: str, runner: str) -> Future[None]:
        """Return the run of a script with a runner or a fault. Begin it unless it has begun."""
        if (run := self._running.get((runner, script))) is None:
            run = self._running[runner, script] = self._submit(self._played(script, runner))
        return run

    def _played(self, script: str, runner: str) -> Coroutine[Any, Any, None]:
        if runner in RUNNERS:
            return self._suite.play(SCRIPTS[script], runner, RUNNERS[runner], 30)
        command = (sys.executable, str(Path(__file__).with_name("faulty_runner.py")), runner)
        # Expectations that are never met take this time, and may: the run fails in any case.
        return self._suite.play(SCRIPTS[script], runner, command, 14, is_shared=False)

    def result(self, script: str, runner: str) -> None:
        """Wait for the end of a run. Raise its error."""
        self.begin(script, runner).result(150)

    def _submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Yield a stage on which all runs of this file have begun, unless tests are selected by name."""
    installed()
    config = request.config
    is_selected = config.getoption("keyword") or any("::" in argument for argument in config.args)
    stage = Stage()
    try:
        if not is_selected:
            for runner in RUNNERS:
                for script in SCRIPTS:
                    stage.begin(script, runner)
            for script, fault, _ in FAULTY:
                stage.begin(script, fault)
        yield stage
    finally:
        stage.close()


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("runner", RUNNERS)
def test_a_client_behaves_as_documented(stage: Stage, runner: str, script: str) -> None:
    stage.result(script, runner)


@pytest.mark.parametrize(
    ("script", "fault", "reason"), FAULTY, ids=[f"{script}-{fault}" for script, fault, _ in FAULTY]
)
def test_a_faulty_client_fails(stage: Stage, script: str, fault: str, reason: str) -> None:
    with pytest.raises(Unmet) as failed:
        stage.result(script, fault)
    assert re.search(reason, str(failed.value).splitlines()[0]), str(failed.value)


def test_each_script_finds_a_faulty_client() -> None:
    assert FAULTS.keys() == SCRIPTS.keys()


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_names_sections_of_the_documentation(script: Script) -> None:
    for place in script.contract:
        page, _, section = place.partition("#")
        headings = re.findall(r"^#+ (.*)$", (CLIENTS.parent / page).read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
        assert not section or section in anchors, f"{page} has no section {section}"


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ('{ clients = "connect" }', "step 1 begins with 'clients'; begin with one of app, attempts"),
        ('{ client = "fly" }', "step 1: no client command 'fly'; use clock, close, connect"),
        ('{ client = "join", rooms = "a" }', "step 1: unknown field rooms; use after, answer, as"),
        ("{ }", "step 1 begins with ''"),
    ],
)
def test_a_mistake_in_a_script_is_reported_with_its_step(tmp_path: Path, step: str, problem: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(f'about = "a"\ncontract = []\nsteps = [{step}]\n')
    with pytest.raises(BadScript, match=re.escape(f"wrong.toml: {problem}")):
        load(file)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("steps = [", "correct the TOML"),
        ("steps = []", "about, contract is missing; add it"),
        ('about = ""\ncontract = []\nsteps = []\nserver = 1', "unknown server; use about, contract"),
    ],
)
def test_a_file_that_is_no_script_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(BadScript, match=problem):
        load(file)


@pytest.mark.parametrize(
    ("expected", "found", "is_match"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"b": 2}, False),
        ({"a": {"min": 2, "max": 3}}, {"a": 3}, True),
        ({"a": {"min": 2}}, {"a": None}, False),
        ({"one_of": [1, 2]}, 3, False),
        ({"contains": "ann"}, "banned", True),
        ({"contains": "ann"}, None, False),
        ({"present": True}, 0, True),
        ({"present": False}, 0, False),
        ([], ["bob"], False),
        (["bob"], ["bob"], True),
    ],
)
def test_expectations_name_some_fields_or_conditions(expected: Any, found: Any, is_match: bool) -> None:
    assert matches(expected, found) == is_match
