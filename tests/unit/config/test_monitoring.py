"""Invalid settings of the dashboard and the metrics."""

from __future__ import annotations

import pytest

from greendot.config.monitoring import Admin, Metrics, check_admin, check_metrics

TAKEN = {"server.port": 8000, "admin.port": 9000}


@pytest.mark.parametrize(
    ("admin", "said"),
    [
        (Admin(key="short"), "could be guessed"),
        (Admin(port=8000), "is also server.port"),
        (Admin(host="127.0.0.1"), "Set admin.port too"),
    ],
)
def test_an_error_of_dashboard_settings_names_the_remedy(admin: Admin, said: str) -> None:
    (mistake,) = check_admin(admin, 8000)
    assert said in mistake
    assert "short" not in mistake.replace("shorter", "")


def test_the_dashboard_is_off_unless_it_is_switched_on_and_its_own_port_is_allowed() -> None:
    assert not Admin().enabled
    assert [*check_admin(Admin(enabled=True, host="127.0.0.1", port=9000, key="k" * 32), 8000)] == []


@pytest.mark.parametrize(
    ("metrics", "workers", "said"),
    [
        (Metrics(port=8000), 1, "metrics.port (8000) conflicts with server.port (8000)"),
        (Metrics(port=8998), 4, "metrics.port (8998 to 9001, one for each worker) conflicts with admin.port (9000)"),
        (Metrics(port=65534), 3, "Choose a lower port"),
        (Metrics(host="127.0.0.1"), 1, "Set metrics.port too"),
    ],
)
def test_an_error_of_metrics_settings_names_the_remedy(metrics: Metrics, workers: int, said: str) -> None:
    (mistake,) = check_metrics(metrics, TAKEN, workers)
    assert said in mistake


def test_a_port_for_each_worker_beside_the_others_is_fine() -> None:
    assert [*check_metrics(Metrics("127.0.0.1", 8001), TAKEN, 8)] == []
    assert [*check_metrics(Metrics(), {"server.port": 0, "admin.port": 0}, 1)] == []
