"""The market's AppConfig."""

from django.apps import AppConfig


class MarketConfig(AppConfig):
    name = "market"
    verbose_name = "Moonrise Market"
