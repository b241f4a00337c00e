"""Study S13: the full protocol in simulation."""
