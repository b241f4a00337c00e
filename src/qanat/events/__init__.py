"""Events: batches, kinds, positions, and the one predicate language. This room imports no other."""
