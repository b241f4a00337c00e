"""The archive: streams as Parquet files with a manifest that says which ranges are complete.

`layout` says where things lie, `storage` is the folder (of this machine, or of a Hadoop file system),
`manifest` is one version of a stream's table of contents, `history` reads and commits versions. See
docs/archive.md.
"""
