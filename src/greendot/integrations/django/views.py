"""Views: tokens for signed-in users, and webhooks of Greendot."""

from __future__ import annotations

import logging
from http import HTTPStatus

from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from greendot.errors import BadWebhook
from greendot.integrations.django import signals
from greendot.integrations.django.conf import NAME, config, server
from greendot.integrations.webhooks import (
    DELIVERY_S,
    EVENT_S,
    MOST_BYTES,
    REPLAYED,
    TOO_LARGE,
    Event,
    typed_event,
    verified,
)
from greendot.protocol.webhooks import SIGNATURE, HookDelivery

logger = logging.getLogger("greendot.django")


@never_cache
@require_POST
def token(request: HttpRequest) -> HttpResponse:
    """Return a token for the signed-in user as `{"token": "…"}`.

    Pages request one at the start and before each token expires. Signing sends no request to Greendot.
    """
    found = config()
    if not found.secret:
        raise ImproperlyConfigured(f'{NAME}["SECRET"] is missing. Set it to auth.secret of the Greendot server.')
    user = found.user_id(request)
    if user is None or user == "":
        return _problem(401, "no user is signed in; sign in first")
    try:
        made = server().token(str(user), ttl=found.token_ttl_s, **dict(found.claims(request)))
    except ValueError as error:  # for example, USER_ID returned a text with a space
        logger.error("no token for the signed-in user: %s", error)
        return _problem(400, str(error))
    return JsonResponse({"token": made})


@csrf_exempt  # Greendot sends no cookie; the signature authenticates the request
@non_atomic_requests  # one transaction would undo the work of receivers that succeeded
@never_cache
@require_POST
def webhook(request: HttpRequest) -> HttpResponse:
    """Verify a webhook and send a Django signal for each of its events.

    The answer is 400 for a wrong signature or a wrong time, 409 for a replay, 413 for a large body, and 500 if a
    receiver failed.
    """
    found = config()
    if not found.webhook_secrets:
        raise ImproperlyConfigured(
            f'{NAME}["WEBHOOK_SECRETS"] is missing. Set it to webhooks.secret of the Greendot server.'
        )
    body = request.read(MOST_BYTES + 1)
    if len(body) > MOST_BYTES:
        return _problem(413, TOO_LARGE)
    try:
        delivery = verified(body, request.headers.get(SIGNATURE, ""), found.webhook_secrets)
    except BadWebhook as error:
        return _problem(400, str(error))
    # Greendot gives each attempt a new id, also for events that it sends again.
    if not caches[found.cache].add(f"greendot:delivery:{delivery.id}", True, DELIVERY_S):
        return _problem(409, REPLAYED)
    if not _dispatch(delivery, found.cache):
        return _problem(500, "a receiver failed; see the log of the app")
    return HttpResponse(status=204)


def _dispatch(delivery: HookDelivery, cache: str) -> bool:
    """Send the signals of events that were not handled before. Return whether all receivers succeeded.

    An event counts as handled if all its receivers succeeded. Otherwise Greendot sends it again.
    """
    keys = {event.id: f"greendot:event:{event.id}" for event in delivery.events}
    seen = caches[cache].get_many([*keys.values()])
    done = dict[str, bool]()
    for event in delivery.events:
        if keys[event.id] not in seen and keys[event.id] not in done and _send(typed_event(event)):
            done[keys[event.id]] = True
    caches[cache].set_many(done, EVENT_S)
    return len(seen.keys() | done.keys()) == len(keys)


def _send(event: Event[object]) -> bool:
    """Send the signals of an event to all receivers. Django logs their exceptions."""
    results = signals.event_received.send_robust(Event, event=event)
    if (signal := signals.BY_TYPE.get(event.type)) is not None:
        results += signal.send_robust(Event, event=event)
    return not any(isinstance(result, Exception) for _, result in results)


def _problem(status: int, detail: str) -> JsonResponse:
    """Return a problem document (RFC 9457), as Greendot's own HTTP API does."""
    phrase = HTTPStatus(status).phrase
    body = {"type": "about:blank", "title": phrase, "status": status, "detail": detail}
    return JsonResponse(body, status=status, content_type="application/problem+json")
