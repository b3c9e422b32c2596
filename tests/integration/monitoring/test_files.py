"""The files for Prometheus, Grafana and scalers name metrics that a scrape has."""

import re
from pathlib import Path

import pytest

from django_delayq import get_store
from django_delayq.monitoring import prometheus
from django_delayq.monitoring.accuracy import Accuracy
from django_delayq.monitoring.figures import Figures
from tests.admin.reports import tell
from tests.shard_apis import ShardApis

FOLDER = Path(__file__).parents[3] / "docs" / "deployment"
FILES = [*sorted(path for path in FOLDER.iterdir() if path.is_file()), FOLDER / "kubernetes" / "hpa.yaml"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_metric_that_a_file_names_is_in_a_scrape(path: Path, apis: ShardApis, delayq_settings: object) -> None:
    apis.add(queue="mail")
    tell(apis, queue="mail", done=1)
    text = prometheus.text(Figures(get_store(), Accuracy())).decode()
    exported = set(re.findall(r"^(\w+)(?:\{| )", text, re.MULTILINE))
    named = set(re.findall(r"\bdelayq_\w+", path.read_text()))
    assert named - exported == set()
