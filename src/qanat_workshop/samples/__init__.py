"""Small real logs of every kind, for tests and for fuzzing."""
