"""Streams as clients see them: publishes, subscriptions, filters, caravans; and the server of streams
alone."""
