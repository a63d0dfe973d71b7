"""Run by test_elastic_jobs.py: worker 0 adds two slots to HOSTS, and must be notified at once, before any commit.

The two new workers, one of which starts later, must join in one reset. The environment of each worker must keep the
rank and the size that the worker was started with.
"""

import os
import queue
import sys
import time
from pathlib import Path

import torch

import horovod.torch as hvd
from horovod.common.elastic import notification_manager

worker = int(os.environ["GOROVOD_ELASTIC_WORKER"])
hosts = Path(sys.argv[1])
if worker == 2:
    time.sleep(0.5)
hvd.init()
heard = queue.SimpleQueue()


class State(hvd.elastic.TorchState):
    def on_hosts_updated(self, timestamp, update_res):
        super().on_hosts_updated(timestamp, update_res)
        heard.put(int(update_res))


class Broken:
    def on_hosts_updated(self, timestamp, update_res):
        raise KeyError("a bug of this listener")


@hvd.elastic.run
def train(state):
    if hvd.size() == 1:
        (hosts.parent / "next").write_text("localhost:3\n")
        (hosts.parent / "next").rename(hosts)
        assert heard.get(timeout=60) == 2  # some have come
        state.step = 1
        state.commit()
        raise AssertionError("the commit does not tell that hosts have changed")
    assert (hvd.size(), state.step) == (3, 1)
    assert hvd.allreduce(torch.ones(1), name="ones", op=hvd.Sum).item() == 3
    # Nothing has been announced to this world.
    assert heard.empty()


notification_manager.register_listener(Broken())
train(State(step=0))
assert (os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]) == (str(worker), "3" if worker else "1"), os.environ
print(f"worker {worker} done", flush=True)
