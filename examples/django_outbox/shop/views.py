"""Views of the shop. An order and its notification are written in one transaction."""

import json

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST

from greendot.integrations.django import notify_on_commit
from shop.models import Order


class SoldOut(Exception):
    """Error raised after the order and the notification were written."""


def user(request: HttpRequest) -> str | None:
    """Return the signed-in user, also for tokens (`USER_ID` in the settings)."""
    return request.session.get("user")


@require_POST
def login(request: HttpRequest) -> HttpResponse:
    """Sign a user in. It stands for the sign-in of your app (`request.user`)."""
    request.session["user"] = json.loads(request.body)["user"]
    return HttpResponse(status=204)


def orders(request: HttpRequest) -> HttpResponse:
    """List the user's orders (GET) or place an order (POST)."""
    customer = user(request)
    if not customer:
        return HttpResponse(status=401)
    if request.method == "GET":
        return JsonResponse({"orders": [order.item for order in Order.objects.filter(user=customer).order_by("id")]})
    try:
        order = place(customer, json.loads(request.body)["item"])
    except SoldOut:
        return JsonResponse({"error": "sold out"}, status=409)
    return JsonResponse({"order": order.pk}, status=201)


@transaction.atomic
def place(customer: str, item: str) -> Order:
    """Write the order and its notification. An exception rolls back both."""
    order = Order.objects.create(user=customer, item=item)
    body = {"order": order.pk, "item": item, "title": "Order placed", "text": item}  # devices show title and text
    # A push of a later state of the same order replaces this one on the user's devices.
    notify_on_commit(customer, "order.placed", body, key=f"order-{order.pk}", collapse=f"order-{order.pk}")
    if item == "unicorn":
        raise SoldOut
    return order
