"""Ray's dashboard shows the stages of a job by name, and the job's secret nowhere."""

import json
import os
import time
import urllib.parse
import urllib.request

import functions
import pytest
import ray

from horovod.ray import RayExecutor

LISTS = ["tasks", "actors", "workers", "jobs", "objects", "placement_groups", "runtime_envs", "nodes"]


@pytest.fixture(scope="module")
def dashboard():
    """The address of the dashboard of a cluster with 2 CPUs."""
    context = ray.init(
        address="local", num_cpus=2, include_dashboard=True, dashboard_host="127.0.0.1", log_to_driver=False
    )
    yield f"http://{context.dashboard_url}"
    ray.shutdown()


def asked(dashboard, path, **query):
    with urllib.request.urlopen(f"{dashboard}/{path}?{urllib.parse.urlencode(query)}", timeout=60) as answer:
        return answer.read().decode(errors="replace")


def listed(dashboard, what):
    return json.loads(asked(dashboard, f"api/v0/{what}", detail="true", limit=1000))["data"]["result"]["result"]


def until_listed(dashboard, names):
    """Ray's dashboard learns of tasks with some delay."""
    end = time.monotonic() + 60
    while not names <= {task["name"] for task in listed(dashboard, "tasks")}:
        assert time.monotonic() < end, {task["name"] for task in listed(dashboard, "tasks")}
        time.sleep(0.5)


def logs(dashboard):
    """All log files, by name, as the dashboard shows them."""
    node = ray.nodes()[0]["NodeID"]
    files = json.loads(asked(dashboard, "api/v0/logs", node_id=node))["data"]["result"]
    names = [name for group in files.values() for name in group if not name.endswith("/")]
    return {name: asked(dashboard, "api/v0/logs/file", node_id=node, filename=name, lines=-1) for name in names}


def secret():
    import torch

    import horovod.torch as hvd

    hvd.init()
    hvd.allreduce(torch.ones(1), name="x")
    return os.environ["HOROVOD_SECRET_KEY"]


def test_the_stages_are_named_and_the_secret_is_nowhere(dashboard):
    static = RayExecutor(num_workers=2)
    static.start(functions.Counter, [1])
    got = []
    static.run(functions.log_steps, args=[1], callbacks=[got.append])
    keys = set(static.run(secret))
    actors = {actor["class_name"]: actor for actor in listed(dashboard, "actors")}
    static.shutdown()
    elastic = RayExecutor(min_workers=2, max_workers=2)
    elastic.start()
    keys |= set(elastic.run(secret))
    elastic.shutdown()
    assert len(keys) == 2 and all(len(bytes.fromhex(key)) == 32 for key in keys)
    until_listed(
        dashboard,
        {f"horovod: {stage}, rank {rank}" for rank in range(2) for stage in ("log_steps", "secret")}
        | {f"horovod: start worker {n}" for n in range(2)}
        | {f"horovod: secret, worker {n}" for n in range(2)}
        | {"horovod: secret, elastic"},
    )
    assert actors["BaseHorovodWorker"]["repr_name"] in ("rank 0", "rank 1")
    shown = {what: json.dumps(listed(dashboard, what)) for what in LISTS}
    shown["pages"] = asked(dashboard, "logical/actors") + asked(dashboard, "nodes", view="summary")
    shown.update(logs(dashboard))
    assert any(name.startswith("worker-") for name in shown) and "ElasticWorker" in shown["actors"]
    for key in keys:
        assert not [what for what, text in shown.items() if key in text]
