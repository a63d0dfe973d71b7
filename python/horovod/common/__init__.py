"""What the front ends share: life cycle and topology, process sets, exceptions, and the binding of the C library."""
