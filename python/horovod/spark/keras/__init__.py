"""Estimators for Keras."""
