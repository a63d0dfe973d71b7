"""The tasks of a job: each runs a child process, which is a rank, and reports on it."""

from __future__ import annotations

import json
import os
import pickle
import queue
import secrets
import signal
import socket
import sys
from typing import Any, Iterator, Mapping, Optional, Sequence

from horovod.common import _lib
from horovod.runner._child import Child, Ending
from horovod.runner.util import network
from horovod.spark import _environment, _place, _rank
from horovod.spark._hub import LOST, Link
from horovod.spark._watch import Watch

_CANCEL_S = 30.0  # how long the driver may take to cancel a job that has failed
GRACE_S = 5.0  # from SIGTERM to SIGKILL


def static(spec: Mapping[str, Any]) -> Iterator[bytes]:
    """A task of a job of a fixed size. Yields rows, pickled: ``("value", rank, bytes)``, or the problem."""
    from pyspark import BarrierTaskContext

    context: Any = BarrierTaskContext.get()
    partition = context.partitionId()
    events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    link: Optional[Link] = None
    own: dict[str, Any] = {
        "partition": partition,
        "attempt": context.taskAttemptId(),
        "host": socket.gethostname(),
        "hash": _place.host(),
        "gpus": _environment.gpus(context, spec["env"]),
    }
    if spec["where"] is not None:
        link = Link(spec["where"], lambda kind, fields: events.put((kind, fields)), own)
    child = Child(
        spec["executable"] or sys.executable,
        _environment.of_process(spec["env"]),
        lambda stream, data: link.send(stream, data) if link is not None else None,
    )
    watch: Optional[Watch] = None
    try:
        told: dict[str, Any] = dict(own)
        if partition == 0:
            told.update(_serve(spec, context))
            if link is None:
                watch = Watch(len(context.getTaskInfos()), [told["address"]])
                told["where"] = watch.hub.where
                reports: queue.SimpleQueue[Any] = queue.SimpleQueue()
                _later(lambda: reports.put(watch.wait()))
        everyone = [json.loads(text) for text in context.allGather(json.dumps(told))]
        unfit = [facts for facts in everyone if "unfit" in facts]
        if unfit:
            yield pickle.dumps(("unfit", unfit))
            return
        if link is None:
            link = Link(everyone[0]["where"], lambda kind, fields: events.put((kind, fields)), own)
        variables, devices = _variables(spec, everyone, partition)
        rank = int(variables["HOROVOD_RANK"])
        link.send("rank", rank=rank)
        pid = child.begin(_rank.work(spec["path"], variables, devices, spec["work"]))
        link.send("started", pid=pid)
        yield from _outcome(child, link, events, rank)
        if watch is not None:
            yield pickle.dumps(("watched", reports.get()))
    finally:
        child.close()
        if link is not None:
            link.close()
        if watch is not None:
            watch.close()


def _serve(spec: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Serve the ranks' rendezvous in this process, and say where it is."""
    infos = context.getTaskInfos()
    address = network.get_driver_ip(spec["nics"]) if spec["nics"] else _address(infos[0].address)
    key = secrets.token_hex(32)
    # This process outlives the job, and so would what shows it.
    shown = {name: os.environ.pop(name) for name in ("GOROVOD_METRICS", "GOROVOD_DASHBOARD") if name in os.environ}
    try:
        port = _lib.serve(address, bytes.fromhex(key), len(infos))
    finally:
        os.environ.update(shown)
    return {"address": address, "key": key, "port": port}


def _address(said: str) -> str:
    """This host's address for Spark's other hosts, with or without a port, as a name or a number."""
    host, _, port = said.rpartition(":")
    return socket.gethostbyname(host.strip("[]") if host and port.isdigit() else said)


def _variables(
    spec: Mapping[str, Any], everyone: Sequence[Mapping[str, Any]], partition: int
) -> tuple[dict[str, str], list[str]]:
    """The variables of this task's rank, and its GPUs."""
    hosts = [facts["hash"] for facts in everyone]
    place = _place.variables(hosts, partition)
    there = [p for p in _place.ranks(hosts) if hosts[p] == hosts[partition]]
    gpus, devices = _environment.visible([everyone[p]["gpus"] for p in there], there.index(partition))
    variables = {
        **place,
        **gpus,
        "HOROVOD_SECRET_KEY": everyone[0]["key"],
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": everyone[0]["address"],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(everyone[0]["port"]),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }
    if spec["start_timeout"]:
        variables["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(max(1, round(spec["start_timeout"])))
    if spec["nics"]:
        variables["HOROVOD_GLOO_IFACE"] = variables["NCCL_SOCKET_IFNAME"] = ",".join(spec["nics"])
    for name in ("HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"):
        if name in spec["env"]:
            variables.pop(name, None)
    return variables, devices


def _outcome(child: Child, link: Link, events: queue.SimpleQueue[tuple[Any, ...]], rank: int) -> Iterator[bytes]:
    """Wait for the child's end, or for the order to end it. Yields the row with the result, if there is one."""
    _later(lambda: events.put(("ended", child.wait())))
    ended: Optional[tuple[Ending, bytes]] = None
    ordered = False
    while ended is None:
        kind, what = events.get()
        if kind == "ended":
            ended = what
        elif kind in ("end", LOST) and not ordered:
            ordered = True
            child.signal(signal.SIGTERM)
            _later(lambda: child.signal(signal.SIGKILL), GRACE_S)
    ending, result = ended
    kind, content = pickle.loads(result) if result else ("", None)
    if kind == "value" and ending == Ending(code=0):
        link.send("ended", code=0, value=True)
        yield pickle.dumps(("value", rank, content))
        return
    traceback = content if kind == "error" else ""
    link.send("ended", code=ending.exit_code, value=False, why=ending.error, traceback=traceback)
    # The watching process cancels the job, so Spark shows it as failed.
    try:
        while not ordered and events.get(timeout=_CANCEL_S)[0] not in ("end", LOST):
            pass
    except queue.Empty:
        pass


def _later(do: Any, seconds: float = 0.0) -> None:
    import threading

    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()
