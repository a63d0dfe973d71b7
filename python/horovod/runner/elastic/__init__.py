"""Elastic jobs: what their workers exchange with their driver."""
