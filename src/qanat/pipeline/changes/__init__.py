"""Logs of datastores as tables: batches, streams, snapshots."""
