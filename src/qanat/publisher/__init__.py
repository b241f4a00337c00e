"""A publisher of a datastore's log as a process."""
