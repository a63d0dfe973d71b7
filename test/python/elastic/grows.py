"""What test_elastic_jobs.py lets grow: worker 0 changes HOSTS, what is discovered, and must hear of it at once.

It commits nothing before. The two newcomers, of which one comes later, must be there after one reset. The environment
must say what was foreseen at the start, also after the reset.
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
    # All that has been announced to this world: nothing.
    assert heard.empty()


notification_manager.register_listener(Broken())
train(State(step=0))
assert (os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]) == (str(worker), "3" if worker else "1"), os.environ
print(f"worker {worker} done", flush=True)
