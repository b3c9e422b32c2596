"""The scalers of the examples: what they read exists, and what they promise agrees."""

from typing import Any

import yaml

from django_delayq import get_store
from django_delayq.monitoring import prometheus
from django_delayq.monitoring.accuracy import Accuracy
from django_delayq.monitoring.figures import Figures
from tests.deployment.files import FOLDER, of_kind
from tests.sample_app.tasks import noop

METRIC = "delayq_workers_needed"
[HPA] = (each["spec"] for each in of_kind("HorizontalPodAutoscaler"))
[KEDA] = of_kind("ScaledObject")
[POLICY] = of_kind("NetworkPolicy")
WORKERS = next(each["spec"] for each in of_kind("Deployment") if each["metadata"]["name"] == "delayq-worker")


def test_the_hpa_reads_the_number_of_workers(delayq_settings: object) -> None:
    noop.enqueue()
    text = prometheus.text(Figures(get_store(), Accuracy())).decode()
    assert f"\n{METRIC} 1.0\n" in text
    # The number of workers itself: Value would multiply it by the replicas that there are.
    target = {"type": "AverageValue", "averageValue": "1"}
    assert HPA["metrics"] == [{"type": "External", "external": {"metric": {"name": METRIC}, "target": target}}]


def test_the_adapter_serves_that_metric_as_one_number() -> None:
    rule = {
        "seriesQuery": METRIC,
        # The autoscaler adds up what is returned: two dispatchers must not count twice.
        "metricsQuery": "max(<<.Series>>{<<.LabelMatchers>>})",
        "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
    }
    assert yaml.safe_load((FOLDER / "prometheus-adapter.yml").read_text()) == {"externalRules": [rule]}


def test_keda_has_exactly_these_keys() -> None:
    """No schema of KEDA is at hand, and the API server drops keys that it does not know."""
    trigger = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": "http://prometheus.monitoring.svc:9090",
            "query": f"max({METRIC})",
            "threshold": "1",
            # By default KEDA takes an empty answer for 0, and stops workers when it is Prometheus that is ill.
            "ignoreNullValues": "false",
        },
    }
    assert (KEDA["apiVersion"], KEDA["metadata"]) == ("keda.sh/v1alpha1", {"name": "delayq-worker"})
    assert KEDA["spec"] == {
        "scaleTargetRef": {"name": HPA["scaleTargetRef"]["name"]},
        "minReplicaCount": HPA["minReplicas"],
        "maxReplicaCount": HPA["maxReplicas"],
        # KEDA makes a HorizontalPodAutoscaler: both scale alike.
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": HPA["behavior"]}},
        # The default behavior would stop all workers but these.
        "fallback": {"failureThreshold": 3, "replicas": 4, "behavior": "currentReplicasIfHigher"},
        "triggers": [trigger],
    }


def test_a_short_pause_stops_no_worker_and_new_work_starts_them_at_once() -> None:
    windows: dict[str, Any] = {way: behavior["stabilizationWindowSeconds"] for way, behavior in HPA["behavior"].items()}
    assert windows == {"scaleDown": 300, "scaleUp": 0}
    # As many as the page says, on any day.
    assert HPA["minReplicas"] == WORKERS["replicas"] == 2 < HPA["maxReplicas"] == 20


def test_keda_asks_the_prometheus_that_may_scrape() -> None:
    [trigger] = KEDA["spec"]["triggers"]
    [peer] = POLICY["spec"]["ingress"][0]["from"]
    [namespace] = peer["namespaceSelector"]["matchLabels"].values()
    assert f".{namespace}.svc:" in trigger["metadata"]["serverAddress"]
