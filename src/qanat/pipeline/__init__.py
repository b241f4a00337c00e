"""Everything Spark: streams as source and sink, ingest, archive, compact, replay, audit."""
