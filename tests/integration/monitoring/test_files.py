"""The files for Prometheus, Grafana and scalers name metrics that a scrape has."""

import re
from pathlib import Path

import pytest
from django.core.management import get_commands

from django_delayq import get_store
from django_delayq.monitoring import prometheus
from django_delayq.monitoring.accuracy import Accuracy
from django_delayq.monitoring.figures import Figures
from tests.admin.reports import tell
from tests.shard_apis import ShardApis
from tests.testing_helpers.docs.pages import PAGES, inline_code

FOLDER = Path(__file__).parents[3] / "docs" / "deployment"
FILES = [*sorted(path for path in FOLDER.iterdir() if path.is_file()), FOLDER / "kubernetes" / "hpa.yaml"]
#: A fixture for projects, an earlier command, and a metric that a scrape has once a forecast is an hour old.
OTHER_NAMES = {"delayq_redis_url", "delayq_inspect", "delayq_forecast_off_seconds"}


def test_every_metric_that_a_page_names_is_in_a_scrape(apis: ShardApis, delayq_settings: object) -> None:
    named = {word for name in PAGES for code in inline_code(name) for word in re.findall(r"\bdelayq_\w+", code)}
    exported = metrics(apis)
    # The page names a histogram, and a scrape has its series.
    histograms = {name.removesuffix("_bucket") for name in exported}
    assert named - exported - histograms - get_commands().keys() - OTHER_NAMES == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_metric_that_a_file_names_is_in_a_scrape(path: Path, apis: ShardApis, delayq_settings: object) -> None:
    named = set(re.findall(r"\bdelayq_\w+", path.read_text()))
    assert named - metrics(apis) == set()


def metrics(apis: ShardApis) -> set[str]:
    """Return the names of the series that a scrape has."""
    apis.add(queue="mail")
    tell(apis, queue="mail", done=1)
    text = prometheus.text(Figures(get_store(), Accuracy())).decode()
    return set(re.findall(r"^(\w+)(?:\{| )", text, re.MULTILINE))
