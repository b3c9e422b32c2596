"""The manifests are valid for Kubernetes, and what they name agrees."""

import pytest

from tests.deployment.files import LEASE, MANIFESTS, STOP, container, judge, manifests, of_kind

PORT = 9180
DEPLOYMENTS = {each["metadata"]["name"]: each for each in of_kind("Deployment")}
WORKLOADS = {each["metadata"]["name"]: each for each in (*of_kind("Deployment"), *of_kind("Job"))}
#: What the strictest of the Pod Security Standards demands of a pod and of a container, and the user of the image.
RESTRICTED_POD = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
#: What a pod may have beside containers. Not among them: hostNetwork, hostPID and the like.
POD_KEYS = {
    "automountServiceAccountToken",
    "containers",
    "restartPolicy",
    "securityContext",
    "terminationGracePeriodSeconds",
    "topologySpreadConstraints",
    "volumes",
}
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


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_ports_labels_and_probes_of_a_deployment_agree(name: str) -> None:
    found, spec = container(DEPLOYMENTS[name]), DEPLOYMENTS[name]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert labels == DEPLOYMENTS[name]["metadata"]["labels"] == spec["selector"]["matchLabels"] == {"app": name}
    assert found["command"][-2:] == ["--http", f"0.0.0.0:{PORT}"]
    assert found["ports"] == [{"name": "monitoring", "containerPort": PORT}]
    paths = {"startupProbe": "/live", "livenessProbe": "/live", "readinessProbe": "/ready"}
    probes = {probe: found[probe] for probe in found if probe.endswith("Probe")}
    assert {probe: probes[probe].pop("httpGet") for probe in probes} == {
        probe: {"path": path, "port": "monitoring"} for probe, path in paths.items()
    }
    # A minute for the imports. Then a process is restarted when its jobs would be taken back anyway, and not earlier.
    assert probes.pop("startupProbe") == {"periodSeconds": 2, "failureThreshold": 30}
    assert LEASE % 10 == 0
    for probe in probes.values():
        assert probe == {"periodSeconds": 10, "failureThreshold": LEASE // 10, "timeoutSeconds": 5}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_rollout_or_a_drained_node_or_a_lost_one_leaves_processes(name: str) -> None:
    spec = DEPLOYMENTS[name]["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    [budget] = [each["spec"] for each in of_kind("PodDisruptionBudget") if each["metadata"]["name"] == name]
    left = {"delayq-worker": {"maxUnavailable": 1}, "delayq-dispatcher": {"minAvailable": 1}}[name]
    selector = {"matchLabels": {"app": name}}
    # While Redis is away, no pod is ready. By default none could be evicted then.
    assert budget == {**left, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": selector}
    [spread] = spec["template"]["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["maxSkew"]) == ("kubernetes.io/hostname", 1)
    # One node is better than no pod.
    assert (spread["whenUnsatisfiable"], spread["labelSelector"]) == ("ScheduleAnyway", selector)


def test_the_check_runs_once_and_ends() -> None:
    [job] = of_kind("Job")
    assert job["spec"]["backoffLimit"] == 0 and job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    # What the page waits for is in test_page.py.
    assert job["spec"]["activeDeadlineSeconds"] > 0


def test_the_monitoring_reaches_the_port_of_the_dispatcher() -> None:
    annotations = [each["spec"]["template"]["metadata"].get("annotations") for each in of_kind("Deployment")]
    prefix = "prometheus.io/"
    scraped = {f"{prefix}scrape": "true", f"{prefix}port": str(PORT), f"{prefix}path": "/metrics"}
    assert [each for each in annotations if each] == [scraped]
    [policy] = of_kind("NetworkPolicy")
    [rule] = policy["spec"]["ingress"]
    namespace = {"kubernetes.io/metadata.name": "monitoring"}
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": namespace}}]
    assert rule["ports"] == [{"protocol": "TCP", "port": PORT}]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    [expression] = policy["spec"]["podSelector"]["matchExpressions"]
    assert set(expression["values"]) == {each["metadata"]["name"] for each in of_kind("Deployment")}


def test_every_object_that_another_one_names_is_there() -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in manifests()}
    named = set()
    for workload in WORKLOADS.values():
        [config, secret] = container(workload)["envFrom"]
        named |= {("ConfigMap", config["configMapRef"]["name"]), ("Secret", secret["secretRef"]["name"])}
    for scaler in (*of_kind("HorizontalPodAutoscaler"), *of_kind("ScaledObject")):
        named.add(("Deployment", scaler["spec"]["scaleTargetRef"]["name"]))
    assert len(named) == 3 and named <= there


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_pod_is_restricted(name: str) -> None:
    pod, found = WORKLOADS[name]["spec"]["template"]["spec"], container(WORKLOADS[name])
    assert pod.keys() <= POD_KEYS and pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == RESTRICTED_POD and found["securityContext"] == RESTRICTED_CONTAINER
    # The image is read-only, so what writes files for a moment needs a place.
    assert pod["volumes"] == [{"name": "tmp", "emptyDir": {}}]
    assert found["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
    assert found["resources"].keys() == {"requests", "limits"} and "memory" in found["resources"]["limits"]


def test_a_fatal_signal_prints_the_stacks() -> None:
    [config] = of_kind("ConfigMap")
    assert config["data"]["PYTHONFAULTHANDLER"] == config["data"]["PYTHONUNBUFFERED"] == "1"
