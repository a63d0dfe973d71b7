"""Elastic jobs: what their workers have to do with their driver."""
