"""Settings of a typed project that uses the package."""

SECRET_KEY = "only-for-mypy"
INSTALLED_APPS = ["django_delayq", "shop"]
DELAYQ = {"REDIS": "redis://localhost:6379/0"}
