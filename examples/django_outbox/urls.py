"""Routes of the shop."""

from django.urls import path
from shop import views

urlpatterns = [
    path("login", views.login),
    path("token", views.token),
    path("orders", views.orders),
]
