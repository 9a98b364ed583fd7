"""Operators of a trace as steps of a program."""
