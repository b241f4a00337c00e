"""The server of [studies](../studies/mariadb_server.py), by the name under which benchmarks and tests know it."""

from qanat.studies.mariadb_server import MariadbServer, free_port, mariadb_server

__all__ = ["MariadbServer", "free_port", "mariadb_server"]
