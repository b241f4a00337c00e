"""The demonstration: the whole way of an event."""
