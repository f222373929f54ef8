"""Configuration of the Django app."""

from django.apps import AppConfig
from django.core.signals import setting_changed


class GreendotConfig(AppConfig):
    """Django app with the label `greendot`."""

    name = "greendot.integrations.django"
    label = "greendot"
    verbose_name = "Greendot"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from greendot.integrations.django import checks, conf  # noqa: F401  (registers the system checks)

        setting_changed.connect(conf.forget)  # override_settings in tests
