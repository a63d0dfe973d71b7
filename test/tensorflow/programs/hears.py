"""Worker 0 of an elastic job adds a slot to HOSTS. Its states must be notified of that before a commit."""

import queue
import sys
from pathlib import Path

import tensorflow as tf

import horovod.keras
import horovod.tensorflow as hvd
from horovod.common.elastic import notification_manager

hosts = Path(sys.argv[1])
hvd.init()
heard = queue.SimpleQueue()


class Listens:
    def on_hosts_updated(self, timestamp, update_res):
        super().on_hosts_updated(timestamp, update_res)
        heard.put(type(self).__name__)


class OfVariables(Listens, hvd.elastic.TensorFlowState):
    pass


class OfModel(Listens, horovod.keras.elastic.KerasState):
    pass


@hvd.elastic.run
def train(state):
    if hvd.size() == 1:
        (hosts.parent / "next").write_text("localhost:2\n")
        (hosts.parent / "next").rename(hosts)
        assert {heard.get(timeout=100), heard.get(timeout=100)} == {"OfVariables", "OfModel"}
        state.commit()
        raise AssertionError("the commit does not tell that hosts have changed")
    assert hvd.size() == 2


model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
notification_manager.register_listener(OfModel(model))
train(OfVariables([tf.Variable(1.0)]))
print("done", flush=True)
