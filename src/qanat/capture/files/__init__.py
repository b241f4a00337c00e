"""Append-only record files as a log: JSON lines, Avro containers, plain lines and length-prefixed records, on
this machine or on HDFS."""
