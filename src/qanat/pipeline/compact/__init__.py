"""Garbage collection at lake scale: the log's own semantics (docs/garbage-collection.md) over an archive, as
a Spark job.

`predicates` is what a GC event's predicate asks for, `collectors` gathers the GC events of a stream and the
prefix that they and the policy make dead, `hunts` and `keys` find single dead events, `proofs` says which GC
events may go, `bitmap` is one bit an event with all of that in it, `graves` makes tombstones of it;
`collection` puts them together as rows in, rows out, and `job` does it to an archive. See docs/compact.md.
"""
