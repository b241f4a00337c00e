"""Virtual time is counted in whole microseconds."""

MS = 1000
S = 1_000_000
