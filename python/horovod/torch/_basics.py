"""The front end's own :class:`HorovodBasics`, and the reduce operations by name."""

from horovod.common.basics import HorovodBasics
from horovod.common.util import get_average_backwards_compatibility_fun

_basics = HorovodBasics(__file__)

Average = _basics.Average
Sum = _basics.Sum
Adasum = _basics.Adasum
Min = _basics.Min
Max = _basics.Max
Product = _basics.Product

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)
