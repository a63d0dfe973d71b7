"""Words in the metadata of a data set. Programs that read the metadata compare with these."""

ARRAY = "array"
"""A vector column that is stored as an array of all its elements."""

CUSTOM_SPARSE = "custom_sparse_format"
"""A vector column that is stored as an array of its elements that are not zero: see ``compress_sparse``."""

NOCHANGE = "nochange"
"""A column that is stored as it is."""
