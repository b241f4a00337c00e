"""Ingest: logs of datastores into streams, as Structured Streaming jobs that publish under the logs' own
positions.

Only ranges of a log go through Spark. The task that gets one reads the log itself (`task`), takes its updates
apart by routes (`routes`, `routing`), publishes them (`publisher`) and puts aside what cannot be published
(`dead_letters`). See docs/pipeline.md.
"""
