"""Publishing from a datastore's own log (Wormhole).

`machine` reads the log, `delivering` sends what it has to whom, `subscribers` is its side of sessions and
datamarkers, `allocation` has its caravans (see `protocols.caravans`), `subscriber` is an instance of an
application, `copy` a publisher of a dataset that has several. See docs/publisher.md.
"""
