"""MariaDB's row binlog, read by GTID and decoded straight into columns."""
