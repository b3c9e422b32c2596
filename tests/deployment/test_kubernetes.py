"""The manifests are valid for Kubernetes, and what they name agrees."""

from typing import Any

import pytest

from django_delayq import get_store
from django_delayq.monitoring import prometheus
from django_delayq.monitoring.accuracy import Accuracy
from django_delayq.monitoring.figures import Figures
from tests.deployment.files import MANIFESTS, STOP, container, judge, manifests, of_kind
from tests.sample_app.tasks import noop

PORT = 9180
#: The oldest release that is looked at, and the newest that the schemas have.
RELEASES = ([], ["--kubernetes-version", "1.30"])


@pytest.mark.parametrize("release", RELEASES, ids=["newest", "oldest"])
def test_the_manifests_are_valid(release: list[str]) -> None:
    judge("kubernetes-validate", *release, "--strict", *MANIFESTS, package="kubernetes-validate")


def test_there_is_a_deployment_of_each() -> None:
    grace = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        for each in of_kind("Deployment")
    }
    assert grace == {"delayq-worker": STOP, "delayq-dispatcher": 10}


@pytest.mark.parametrize("workload", of_kind("Deployment"), ids=lambda each: each["metadata"]["name"])
def test_ports_labels_and_probes_of_a_deployment_agree(workload: dict[str, Any]) -> None:
    found, spec = container(workload), workload["spec"]
    labels, name = spec["template"]["metadata"]["labels"], workload["metadata"]["name"]
    assert labels == workload["metadata"]["labels"] == spec["selector"]["matchLabels"] == {"app": name}
    assert found["command"][-2:] == ["--http", f"0.0.0.0:{PORT}"]
    assert found["ports"] == [{"name": "monitoring", "containerPort": PORT}]
    probes = {name: probe["httpGet"] for name, probe in found.items() if name.endswith("Probe")}
    paths = {"startupProbe": "/live", "livenessProbe": "/live", "readinessProbe": "/ready"}
    assert probes == {probe: {"path": path, "port": "monitoring"} for probe, path in paths.items()}
    [budget] = [each for each in of_kind("PodDisruptionBudget") if each["metadata"]["name"] == name]
    assert budget["spec"]["selector"]["matchLabels"] == labels


def test_the_monitoring_reaches_the_port_of_the_dispatcher() -> None:
    annotations = [each["spec"]["template"]["metadata"].get("annotations") for each in of_kind("Deployment")]
    prefix = "prometheus.io/"
    scraped = {f"{prefix}scrape": "true", f"{prefix}port": str(PORT), f"{prefix}path": "/metrics"}
    assert [each for each in annotations if each] == [scraped]
    [policy] = of_kind("NetworkPolicy")
    [rule] = policy["spec"]["ingress"]
    assert [each["port"] for each in rule["ports"]] == [PORT]
    [expression] = policy["spec"]["podSelector"]["matchExpressions"]
    assert set(expression["values"]) == {each["metadata"]["name"] for each in of_kind("Deployment")}


def test_every_object_that_another_one_names_is_there() -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in manifests()}
    named = set()
    for workload in (*of_kind("Deployment"), *of_kind("Job")):
        [config, secret] = container(workload)["envFrom"]
        named |= {("ConfigMap", config["configMapRef"]["name"]), ("Secret", secret["secretRef"]["name"])}
    for scaler in (*of_kind("HorizontalPodAutoscaler"), *of_kind("ScaledObject")):
        named.add(("Deployment", scaler["spec"]["scaleTargetRef"]["name"]))
    assert len(named) == 3 and named <= there


def test_no_container_is_root_or_writes_to_its_image() -> None:
    for workload in (*of_kind("Deployment"), *of_kind("Job")):
        pod, own = workload["spec"]["template"]["spec"], container(workload)["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
        assert own["readOnlyRootFilesystem"] and own["capabilities"] == {"drop": ["ALL"]}
        assert own["allowPrivilegeEscalation"] is False


def test_the_scaler_reads_a_metric_of_a_scrape(delayq_settings: object) -> None:
    noop.enqueue()
    [scaler] = of_kind("HorizontalPodAutoscaler")
    [metric] = [each["external"] for each in scaler["spec"]["metrics"]]
    text = prometheus.text(Figures(get_store(), Accuracy())).decode()
    assert f"\n{metric['metric']['name']} 1.0\n" in text
    # The number of workers itself: Value would multiply it by the replicas that there are.
    assert metric["target"] == {"type": "AverageValue", "averageValue": "1"}
