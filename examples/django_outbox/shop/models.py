"""Orders of the shop."""

from django.db import models


class Order(models.Model):
    """Order of one item by a user."""

    user = models.CharField(max_length=128)
    item = models.CharField(max_length=100)
