"""A real mariadbd for tests."""

from qanat.studies.mariadb_server import MariadbServer, free_port, mariadb_server

__all__ = ["MariadbServer", "free_port", "mariadb_server"]
