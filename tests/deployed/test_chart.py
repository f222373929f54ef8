"""Helm chart as rendered by helm: valid by Kubernetes's schemas, with the documented properties.

The manifests are committed, so that a review shows changes. They are rendered again and compared. Without helm (its
wheel is for Linux on x86-64) only the fingerprint of the chart is compared.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate
import pytest
import yaml

from deployed import charted
from deployed.programs import ROOT
from greendot.config import Settings, load, strange_variables
from redis_servers.process import program

SECRETS = {"GREENDOT_AUTH_SECRET": "0123456789abcdef0123456789abcdef"}
SHARED = SECRETS | {"GREENDOT_ENGINE_URL": "redis://redis:6379", "GREENDOT_STORE_URL": "postgresql://db/greendot"}
REFUSED = {
    "secret.existing must name a Secret": [],
    "exclude each other": ["secret.existing=a", "secret.values.GREENDOT_AUTH_SECRET=b"],
    "lacks GREENDOT_ENGINE_URL": ["secret.values.GREENDOT_AUTH_SECRET=b"],
    "persistence is for one node": ["secret.existing=a", "persistence.enabled=true"],
    "migrate is for PostgreSQL": ["secret.existing=a", "persistence.enabled=true", "replicas=1"],
}
every_case = pytest.mark.parametrize("case", charted.CASES)


def one(case: str, kind: str, name: str = "rt-greendot") -> dict[str, Any]:
    (found,) = [
        each for each in charted.rendered(case) if each["kind"] == kind and each["metadata"]["name"] == name
    ] or [{}]
    return found


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (only,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(only)


def settings(case: str, workload: dict[str, Any], tmp_path: Path) -> Settings:
    """Return the settings of a server in the pod, from its environment and its file."""
    environment = {each["name"]: each["value"] for each in container(workload)["env"]}
    assert len(environment) == len(container(workload)["env"])  # nothing is set twice
    environment |= one(case, "Secret").get("stringData") or SHARED
    assert strange_variables(environment) == []
    file = None
    if "--config" in container(workload)["args"]:
        file = tmp_path / "greendot.toml"
        file.write_text(one(case, "Secret", "rt-greendot-config")["stringData"]["greendot.toml"])
    return load(file, environment, {})


def test_what_is_committed_was_rendered_from_this_chart() -> None:
    assert charted.RENDERED_FROM.read_text().strip() == charted.fingerprint(), (
        "run: make charts WRITE=1, and review the change"
    )


@every_case
def test_helm_renders_what_is_committed(case: str) -> None:
    assert (charted.FOLDER / f"{case}.yaml").read_text() == charted.render(program("helm", charted.helm()), case)


@pytest.mark.parametrize(("words", "given"), REFUSED.items())
def test_helm_refuses_what_would_start_and_not_work(words: str, given: list[str]) -> None:
    done = charted.attempt(program("helm", charted.helm()), *(f"--set={each}" for each in given))
    assert done.returncode != 0
    assert words in done.stderr


def test_what_is_refused_is_in_the_chart() -> None:
    helpers = (charted.CHART / "templates" / "_helpers.tpl").read_text()
    for words in REFUSED:
        assert words.replace("lacks GREENDOT_ENGINE_URL", "lacks %s") in helpers


@every_case
def test_kubernetes_takes_every_object(case: str) -> None:
    for each in charted.rendered(case):
        if each["kind"] == "ServiceMonitor":
            continue  # a resource of the Prometheus operator: Kubernetes has no schema for it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library uses an old name of a Python module
            kubernetes_validate.validate(each, charted.KUBERNETES.rpartition(".")[0], strict=True)


@every_case
def test_the_values_are_held_against_a_schema_and_so_are_the_defaults(case: str) -> None:
    schema = jsonschema_rs.validator_for(json.loads((charted.CHART / "values.schema.json").read_text()))
    defaults = yaml.safe_load((charted.CHART / "values.yaml").read_text())
    schema.validate(defaults)
    schema.validate(yaml.safe_load((charted.FOLDER / f"{case}.values.yaml").read_text()))
    known = json.loads((charted.CHART / "values.schema.json").read_text())["properties"]
    assert known.keys() - {"global"} == defaults.keys()
    for wrong in (
        {"replica": 3},
        {"settings": {"server": {"workers": 4}}},
        {"settings": {"server": {"dev": True}}},
        {"secret": {"values": {"AUTH_SECRET": "x"}}},
        {"image": {"repository": "greendot", "tag": "latest"}},
        {"drain": {"spareSeconds": 5}},
    ):
        assert not schema.is_valid(wrong), wrong


@every_case
def test_the_settings_are_ones_that_a_server_takes(case: str, tmp_path: Path) -> None:
    deployment = one(case, "Deployment")
    found = settings(case, deployment, tmp_path)
    ports = {each["name"]: each["containerPort"] for each in container(deployment)["ports"]}
    assert ports == {"http": found.server.port} | ({"metrics": found.metrics.port} if found.metrics.port else {})
    assert found.server.workers == 1
    assert not found.server.dev
    if case == "shared":
        # Numbers and lists keep their types and values.
        assert found.limits.tenant_commands_per_s == 1_000_000
        assert found.overload.lag_s == 0.15
        assert found.door.origins == ("https://app.example.com", "https://admin.example.com")
        assert found.tenants["acme"].limits.commands_per_s == 200


@every_case
def test_a_node_has_the_time_to_drain(case: str, tmp_path: Path) -> None:
    deployment = one(case, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    server = settings(case, deployment, tmp_path).server
    hook = container(deployment).get("lifecycle", {}).get("preStop", {"exec": {"command": ["sleep", "0"]}})
    program, notice = hook["exec"]["command"]
    assert program == "sleep"
    assert float(notice) + server.drain_notice_s >= 4  # time until all proxies know
    # A server ends itself 10 s after its notice and its drain.
    assert pod["terminationGracePeriodSeconds"] > float(notice) + server.drain_notice_s + server.drain_s + 10


@every_case
def test_probes_distinguish_a_dead_node_from_one_that_is_not_ready(case: str) -> None:
    node = container(one(case, "Deployment"))
    asked = {name: node[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert {name: each["path"] for name, each in asked.items()} == {
        "startup": "/livez",
        "readiness": "/readyz",
        "liveness": "/livez",
    }
    assert {each["port"] for each in asked.values()} == {"http"}


@every_case
def test_no_container_runs_as_root_or_can_write_to_its_root_file_system(case: str) -> None:
    for workload in charted.rendered(case):
        if workload["kind"] not in ("Deployment", "Job"):
            continue
        pod, only = workload["spec"]["template"]["spec"], container(workload)
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert only["securityContext"]["readOnlyRootFilesystem"]
        assert only["securityContext"]["allowPrivilegeEscalation"] is False
        assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        user = (ROOT / "Dockerfile").read_text().partition("USER ")[2].split(":")[0]
        assert str(pod["securityContext"]["runAsUser"]) == user
        assert ":latest" not in only["image"]
        # Secrets are in a Secret, not in the pod.
        assert not [each for each in only["env"] if any(word in each["name"] for word in ("SECRET", "KEY", "_URL"))]


def test_nodes_that_share_are_scaled_by_connections_and_kept_from_all_going_at_once() -> None:
    scaler = one("shared", "HorizontalPodAutoscaler")["spec"]
    assert scaler["metrics"][0]["pods"]["metric"] == {"name": "ws_connections"}
    assert "replicas" not in one("shared", "Deployment")["spec"]  # the autoscaler sets them
    assert one("shared", "Deployment")["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert one("shared", "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    (endpoint,) = one("shared", "ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("metrics", "/metrics")
    inside = one("shared", "Service", "rt-greendot-metrics")["spec"]
    assert (inside["clusterIP"], [each["name"] for each in inside["ports"]]) == ("None", ["metrics"])
    assert [each["name"] for each in one("shared", "Service")["spec"]["ports"]] == ["http"]
    assert not one("single", "Service", "rt-greendot-metrics")  # served on the server's own port in this case
    (rule,) = one("shared", "Ingress")["spec"]["rules"]
    assert [each["path"] for each in rule["http"]["paths"]] == ["/v1"]  # neither /metrics nor /admin
    timeout_s = one("shared", "Ingress")["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-read-timeout"]
    assert float(timeout_s) > Settings().presence.dead_after_s


def test_tables_are_brought_up_to_date_before_the_first_node_and_need_nothing_that_comes_later() -> None:
    for case in ("shared", "trial"):
        job = one(case, "Job", "rt-greendot-migrate")
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert container(job)["args"][0] == "migrate"
        (source,) = container(job)["envFrom"]
        wanted = [source["secretRef"]["name"]]
        wanted += [
            each["secret"]["secretName"] for each in job["spec"]["template"]["spec"]["volumes"] if "secret" in each
        ]
        hooks = {
            each["metadata"]["name"]: each
            for each in charted.rendered(case)
            if each["kind"] == "Secret" and "helm.sh/hook" in each["metadata"].get("annotations", {})
        }
        for name in wanted:
            # Created by an earlier hook, or by the operator of the cluster.
            assert name in hooks or name in ("greendot-secrets", "redis-ca"), name
            if name in hooks:
                assert int(hooks[name]["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0


def test_one_node_keeps_its_records_on_a_volume() -> None:
    deployment = one("single", "Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    claim = one("single", "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert {"persistentVolumeClaim": {"claimName": "rt-greendot"}, "name": "data"} in deployment["template"]["spec"][
        "volumes"
    ]
    assert not one("single", "Job", "rt-greendot-migrate")
