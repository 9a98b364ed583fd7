"""Accuracy-driven tuning: the fastest recipe that keeps a measured accuracy."""
