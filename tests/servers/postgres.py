"""A real PostgreSQL for tests."""

from qanat.bench.programs import free_port
from qanat_workshop.postgres_server import BIN, PostgresServer, postgres_server

__all__ = ["BIN", "PostgresServer", "free_port", "postgres_server"]
