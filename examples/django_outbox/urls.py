"""Routes of the shop."""

from django.urls import include, path
from shop import views

urlpatterns = [
    path("login", views.login),
    path("orders", views.orders),
    path("greendot/", include("greendot.integrations.django.urls")),
]
