"""A job of a fixed size: the tasks of a barrier stage meet, and each calls the function."""

from __future__ import annotations

import json
import os
import secrets
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import cloudpickle

from horovod.common import _lib
from horovod.runner.common.util.host_hash import host_hash


def run(
    session: Any,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    size: int,
    env: Mapping[str, str],
) -> list[Any]:
    """Run the function in ``size`` tasks, and return the results by rank."""
    work = cloudpickle.dumps((fn, args, kwargs))

    def task(_: Iterable[Any]) -> Iterator[Any]:
        from horovod.spark import _static

        yield _static.be_a_rank(work, env)

    ranks = session.sparkContext.parallelize(range(size), size).barrier().mapPartitions(task).collect()
    return [value for _, value in sorted(ranks)]


def be_a_rank(work: bytes, env: Mapping[str, str]) -> tuple[int, Any]:
    """Meet the other tasks, call the function, and return the rank and the result."""
    from pyspark import BarrierTaskContext

    context: Any = BarrierTaskContext.get()
    facts: dict[str, Any] = {"host": host_hash(os.environ.get("CONTAINER_ID"))}
    if context.partitionId() == 0:
        address = context.getTaskInfos()[0].address.rpartition(":")[0] or context.getTaskInfos()[0].address
        key = secrets.token_hex(32)
        facts.update(
            address=address, key=key, port=_lib.serve(address, bytes.fromhex(key), len(context.getTaskInfos()))
        )
    there = [json.loads(text) for text in context.allGather(json.dumps(facts))]
    hosts = list(dict.fromkeys(each["host"] for each in there))
    order = sorted(range(len(there)), key=lambda partition: (hosts.index(there[partition]["host"]), partition))
    rank = order.index(context.partitionId())
    own = [partition for partition in order if there[partition]["host"] == facts["host"]]
    os.environ.update(env)
    os.environ.update(
        HOROVOD_RANK=str(rank),
        HOROVOD_SIZE=str(len(there)),
        HOROVOD_LOCAL_RANK=str(own.index(context.partitionId())),
        HOROVOD_LOCAL_SIZE=str(len(own)),
        HOROVOD_HOSTNAME=facts["host"],
        HOROVOD_SECRET_KEY=there[0]["key"],
        HOROVOD_GLOO_RENDEZVOUS_ADDR=there[0]["address"],
        HOROVOD_GLOO_RENDEZVOUS_PORT=str(there[0]["port"]),
    )
    fn, args, kwargs = cloudpickle.loads(work)
    return rank, fn(*args, **kwargs)
