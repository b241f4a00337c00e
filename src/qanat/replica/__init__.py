"""A replica of a region's chain as a process, and the region's coordinator."""
