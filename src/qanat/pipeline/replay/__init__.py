"""Replay: a subscriber, or a stream, that begins further back than servers keep is served from the archive,
then handed over.

`row_groups` makes batches of Parquet, `reading` reads ahead in parallel, `bucket` is the rate limit,
`handover` says who has what comes next, and `subscription` is the whole as a subscription. `republish` is the
job on Spark. See docs/replay.md.
"""
