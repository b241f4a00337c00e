"""A real mariadbd for tests."""

from qanat.bench.programs import free_port
from qanat_workshop.mariadb_server import MariadbServer, mariadb_server

__all__ = ["MariadbServer", "free_port", "mariadb_server"]
