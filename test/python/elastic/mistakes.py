"""An elastic program whose ranks disagree about a shape, after some commits."""

import torch

import horovod.torch as hvd

hvd.init()
parameter = torch.ones(1, requires_grad=True)
state = hvd.elastic.TorchState(torch.nn.Linear(1, 1), torch.optim.SGD([parameter], lr=0.1), step=0)


@hvd.elastic.run
def train(state):
    while True:
        mistaken = state.step == 5 and hvd.rank() == 1
        hvd.allreduce(torch.ones(3 if mistaken else 2), name="x")
        state.step += 1
        if state.step % 2 == 0:
            state.commit()


train(state)
