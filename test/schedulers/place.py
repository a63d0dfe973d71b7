"""One rank: prints its place, and the sum of all ranks' numbers by an allreduce, in one line."""

import sys

import torch

import horovod.torch as hvd

hvd.init()
total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum)
hvd.init()  # changes nothing
again = hvd.broadcast_object(int(total), root_rank=hvd.size() - 1)
place = (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
# One write: several processes share the output.
sys.stdout.write(f"place {' '.join(map(str, place))} sum {again} mpi {hvd.mpi_enabled()}\n")
sys.stdout.flush()
hvd.shutdown()
