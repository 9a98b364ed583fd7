"""From decisions to a file: conversion, tensors, messages, metadata and the report."""
