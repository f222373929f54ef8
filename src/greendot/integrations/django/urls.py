"""Routes of the app: `path("greendot/", include("greendot.integrations.django.urls"))`."""

from django.urls import path

from greendot.integrations.django import views

app_name = "greendot"
urlpatterns = [
    path("token", views.token, name="token"),
    path("webhook", views.webhook, name="webhook"),
]
