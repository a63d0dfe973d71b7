"""The reduce operations, by the library's numbers. Front ends re-export this list."""

from horovod.common._job import basics
from horovod.common.util import get_average_backwards_compatibility_fun

Average = basics.Average
Sum = basics.Sum
Adasum = basics.Adasum
Min = basics.Min
Max = basics.Max
Product = basics.Product

# The operations of Horovod's functions. The engine has more, for torch.distributed.
ALLREDUCE_OPS = frozenset((Average, Sum, Adasum, Min, Max, Product))
SCATTER_OPS = frozenset((Average, Sum))

__all__ = ["Adasum", "Average", "Max", "Min", "Product", "Sum"]

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(basics)
