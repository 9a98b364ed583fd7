"""Tuning PyTorch models: what the search asks of this front end."""
