"""The audit: delivery records against the archive. Gapless, ordered, exactly once: proven, refuted, or not
reached.

`deliveries` and `published` make blocks of sequence numbers of what was handed over and of what there was,
`judge` compares one block with the other, `reasons` asks why events were collected, `job` puts it together,
`report` is the answer. See docs/audit.md.
"""
