"""Streams as tables that are read: options, offsets, partitions."""
