"""The code that front ends share: life cycle, topology, process sets, exceptions, and the binding of the C library."""
