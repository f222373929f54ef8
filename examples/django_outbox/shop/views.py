"""Views of the shop. An order and its notification are written in one transaction."""

import json
import os

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST

from greendot import Server
from shop.models import Order, Outbox

# Used for tokens only. Notifications go through the database, so the shop works while Greendot is down.
greendot = Server(os.environ["GREENDOT_HTTP"], secret=os.environ["GREENDOT_AUTH_SECRET"])


class SoldOut(Exception):
    """Error raised after the order and the notification were written."""


@require_POST
def login(request: HttpRequest) -> HttpResponse:
    """Sign a user in. It stands for the sign-in of your app (`request.user`)."""
    request.session["user"] = json.loads(request.body)["user"]
    return HttpResponse(status=204)


@require_POST
def token(request: HttpRequest) -> HttpResponse:
    user = request.session.get("user")
    return JsonResponse({"token": greendot.token(user)}) if user else HttpResponse(status=401)


def orders(request: HttpRequest) -> HttpResponse:
    """List the user's orders (GET) or place an order (POST)."""
    user = request.session.get("user")
    if not user:
        return HttpResponse(status=401)
    if request.method == "GET":
        return JsonResponse({"orders": [order.item for order in Order.objects.filter(user=user).order_by("id")]})
    try:
        order = place(user, json.loads(request.body)["item"])
    except SoldOut:
        return JsonResponse({"error": "sold out"}, status=409)
    return JsonResponse({"order": order.pk}, status=201)


@transaction.atomic
def place(user: str, item: str) -> Order:
    """Write the order and its notification. An exception rolls back both."""
    order = Order.objects.create(user=user, item=item)
    body = {"order": order.pk, "item": item, "title": "Order placed", "text": item}  # devices show title and text
    # A push of a later state of the same order replaces this one on the user's devices.
    Outbox.notify(user, "order.placed", body, key=f"order-{order.pk}", collapse_key=f"order-{order.pk}")
    if item == "unicorn":
        raise SoldOut
    return order
