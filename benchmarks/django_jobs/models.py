"""Models: what jobs read, what they write, and what views write."""

from django.db import models


class Product(models.Model):
    """A row that jobs read."""

    cents = models.IntegerField()


class Sale(models.Model):
    """A row that a job writes. A job that ran twice has two."""

    job = models.IntegerField()
    cents = models.IntegerField()


class Order(models.Model):
    """A row that a view writes."""

    number = models.IntegerField()
