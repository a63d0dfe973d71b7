"""Data loaders for PyTorch over the reader of Parquet files."""
