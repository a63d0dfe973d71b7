"""Horovod's own settings as an executor's: what each field does."""

import os
from types import SimpleNamespace

import pytest

from horovod.ray import ElasticRayExecutor, RayExecutor
from horovod.ray.runner import MiniSettings
from horovod.runner.common.util.settings import Settings
from horovod.runner.common.util.timeout import Timeout, TimeoutException
from horovod.runner.elastic.settings import ElasticSettings

on_a_cluster = pytest.mark.usefixtures("cluster")

ELASTIC = {"min_num_proc": 2, "max_num_proc": 4, "reset_limit": 3, "elastic_timeout": 99, "cooldown_range": (1, 2)}
CONFIG = {"np": 2, "min": 2, "max": 4, "reset_limit": 3, "timeout": 99, "cooldown": [1, 2]}


def environment():
    return [os.environ.get(name) for name in ("HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_LOG_LEVEL", "OWN")]


@on_a_cluster
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (lambda: Settings(num_proc=2), ["300", None, "1"]),
        (lambda: Settings(num_proc=2, start_timeout=41, verbose=2), ["41", "debug", "1"]),
        (lambda: Settings(num_proc=2, start_timeout=Timeout(50.4, "late: {activity}"), nics={"lo"}), ["50", None, "1"]),
        (lambda: Settings(num_proc=2, timeout_s=42, start_timeout=1, run_func_mode=True), ["42", None, "1"]),
        (lambda: SimpleNamespace(nics="lo", num_proc=2), ["300", None, "1"]),
        (lambda: MiniSettings(num_proc=2, verbose=3, timeout_s=60), ["60", "debug", "1"]),
    ],
)
def test_a_job_by_settings(settings, told, caplog):
    executor = RayExecutor(settings())
    executor.start(extra_env_vars={"OWN": 1})
    assert executor.run(environment) == [told, told]
    executor.shutdown()
    assert "without effect" not in caplog.text


@on_a_cluster
@pytest.mark.parametrize("newer", [True, False])
def test_an_elastic_job_by_settings(newer):
    settings = ElasticSettings(min_num_proc=1, max_num_proc=2, num_proc=2, start_timeout=43, verbose=2)
    told = ["43", "debug", "1"]
    if newer:
        executor = RayExecutor(settings)
        executor.start(extra_env_vars={"OWN": 1})
    else:
        executor = ElasticRayExecutor(settings, env_vars={"OWN": 1})
        executor.start()
    assert executor.run(environment) == [told, told]


@on_a_cluster
def test_own_variables_win():
    for settings in (MiniSettings(num_proc=1), ElasticRayExecutor.create_settings(max_num_proc=1, timeout_s=44)):
        executor = RayExecutor(settings)
        executor.start(extra_env_vars={"HOROVOD_GLOO_TIMEOUT_SECONDS": 55})
        assert executor.run(environment)[0][0] == "55"
        executor.shutdown()


@pytest.mark.parametrize(
    ("executor", "changed"),
    [
        (lambda: RayExecutor(ElasticSettings(**ELASTIC)), {}),
        (lambda: RayExecutor(ElasticSettings(**ELASTIC, num_proc=3)), {"np": 3}),
        (lambda: RayExecutor(ElasticRayExecutor.create_settings(**ELASTIC)), {}),
        (lambda: RayExecutor(ElasticSettings(**ELASTIC), min_workers=2, reset_limit=3), {}),
        (
            lambda: RayExecutor(ElasticSettings(reset_limit=3), min_workers=2),
            {"max": 0, "timeout": 600, "cooldown": None},
        ),
        (lambda: RayExecutor(Settings(**ELASTIC)), {}),
        (lambda: ElasticRayExecutor(ElasticSettings(**ELASTIC)), {}),
        (lambda: ElasticRayExecutor(SimpleNamespace(nics=None, **ELASTIC)), {}),
        (
            lambda: ElasticRayExecutor(Settings(num_proc=2)),
            {"max": 0, "reset_limit": None, "timeout": 600, "cooldown": None},
        ),
        (
            lambda: RayExecutor(Settings(elastic=True, num_proc=2)),
            {"max": 0, "reset_limit": None, "timeout": 600, "cooldown": None},
        ),
    ],
)
def test_numbers_of_an_elastic_job(executor, changed):
    made = executor()
    adapter = made.adapter if isinstance(made, RayExecutor) else made._adapter
    assert {name: adapter._config[name] for name in CONFIG} == {**CONFIG, **changed}
    assert made.settings.elastic is True


@pytest.mark.parametrize(
    ("executor", "says"),
    [
        (lambda: RayExecutor(Settings(num_proc=2), num_workers=3), "settings.num_proc=2, but .* ask for 3 workers"),
        (lambda: RayExecutor(Settings(num_proc=2), num_hosts=1), "settings.num_proc=2, but .* ask for 1 workers"),
        (lambda: RayExecutor(Settings()), "give num_workers, or num_hosts"),
        (lambda: RayExecutor(ElasticSettings(**ELASTIC), num_workers=2), "these settings are of an elastic job"),
        (lambda: RayExecutor(ElasticSettings(**ELASTIC), min_workers=1), "min_workers=1, but the settings have 2"),
        (
            lambda: RayExecutor(ElasticSettings(**ELASTIC), min_workers=2, elastic_timeout=7),
            "elastic_timeout=7, but the settings have 99",
        ),
        (
            lambda: RayExecutor(ElasticSettings(**ELASTIC, num_proc=5)),
            "num_proc=5 is not from min_workers=2 to max_workers=4",
        ),
        (
            lambda: ElasticRayExecutor(ElasticSettings(min_num_proc=2, num_proc=1)),
            "num_proc=1 is not from min_workers=2",
        ),
        (lambda: RayExecutor(Settings(output_filename="out"), 2), "settings.output_filename='out' cannot act on Ray"),
        (lambda: RayExecutor(Settings(extra_mpi_args="-x A"), 2), "settings.extra_mpi_args='-x A' cannot act on Ray"),
        (lambda: ElasticRayExecutor(Settings(binding_args="-b")), "settings.binding_args='-b' cannot act on Ray"),
        (lambda: RayExecutor(num_workers=2, reset_limit=3), "reset_limit is for an elastic job: give min_workers"),
        (lambda: RayExecutor(num_workers=2, cooldown_range=(1, 2)), "cooldown_range is for an elastic job"),
        (lambda: RayExecutor(num_workers=2, elastic_timeout=3), "elastic_timeout is for an elastic job"),
        (lambda: RayExecutor(num_workers=2, override_discovery=False), "override_discovery is for an elastic job"),
    ],
)
def test_settings_that_cannot_be(executor, says):
    with pytest.raises(ValueError, match=says):
        executor()


def test_an_expired_time_limit():
    with pytest.raises(TimeoutException, match="the making of the executor came late"):
        RayExecutor(Settings(num_proc=1, start_timeout=Timeout(-1, "{activity} came late.")))


@pytest.mark.parametrize("of", [RayExecutor, ElasticRayExecutor])
def test_settings_without_effect_are_told(of, caplog):
    given = {"hosts": "a:1", "key": b"s3cret", "ssh_port": 22, "ssh_identity_file": "id", "tcp_flag": True}
    executor = of(Settings(num_proc=1, prefix_output_with_timestamp=True, discoverer=7, other=None, **given))
    (said,) = [r.getMessage() for r in caplog.records if "without effect" in r.getMessage()]
    assert [part.split()[0] for part in said.partition("effect: ")[2].split("; ") if "(" in part] == [
        "hosts",
        "key",
        "prefix_output_with_timestamp",
        "ssh_identity_file",
        "ssh_port",
        "tcp_flag",
        "discoverer",
    ]
    assert "s3cret" not in said + repr(executor.settings)


def test_a_discovery_that_is_not_asked_is_told(caplog):
    settings = ElasticRayExecutor.create_settings(discovery=object())
    ElasticRayExecutor(settings)
    assert "settings.discovery is not used: Ray finds the hosts" in caplog.text
