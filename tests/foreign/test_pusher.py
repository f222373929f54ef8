"""Unmodified clients of Pusher: pusher-js, laravel-echo with Reverb, and `pusher` for Node."""

from __future__ import annotations

import socket

import pytest

from .clients import real_server, run_node

pytestmark = pytest.mark.timeout(90)


@pytest.mark.parametrize(
    "scenario", ["public", "twice", "private", "presence", "cache", "user", "codes", "http", "echo"]
)
async def test_an_unmodified_client_finds_what_it_expects(scenario: str) -> None:
    async with real_server() as greendot:
        await run_node(scenario, greendot.server.port)


async def test_limits_are_reported_and_nothing_is_closed() -> None:
    async with real_server(pusher={"presence_members": 2}) as greendot:
        await run_node("limits", greendot.server.port)


async def test_subscribers_get_their_number_if_the_app_wants_it() -> None:
    async with real_server(pusher={"subscription_count": True}) as greendot:
        await run_node("counts", greendot.server.port)


async def test_webhooks_are_signed_and_sent_again_after_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    hooks = {"webhook_url": f"http://127.0.0.1:{port}/hook"}
    async with real_server(pusher=hooks, webhooks={"allow_private": ["127.0.0.0/8"]}) as greendot:
        await run_node("webhooks", greendot.server.port, HOOK_PORT=str(port))
