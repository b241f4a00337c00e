"""Study S14: what garbage collection by key leaves of a stream."""
