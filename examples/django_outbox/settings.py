"""Settings of a small Django project on PostgreSQL: `DATABASE_URL=postgresql://shop@db/shop`."""

import os
from urllib.parse import parse_qs, unquote, urlsplit

_url = urlsplit(os.environ["DATABASE_URL"])

SECRET_KEY = os.environ["SECRET_KEY"]
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "urls"
INSTALLED_APPS = ["greendot.integrations.django", "shop"]
MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TIME_ZONE = "UTC"
GREENDOT = {
    "URL": os.environ["GREENDOT_URL"],
    "SECRET": os.environ["GREENDOT_AUTH_SECRET"],
    "USER_ID": "shop.views.user",
}
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.lstrip("/"),
        "USER": unquote(_url.username or ""),
        "PASSWORD": unquote(_url.password or ""),
        # The query holds the folder of a Unix socket: postgresql:///shop?host=/run/postgresql
        "HOST": parse_qs(_url.query).get("host", [_url.hostname or ""])[0],
        "PORT": str(_url.port or ""),
    }
}
