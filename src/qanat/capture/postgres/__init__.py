"""PostgreSQL: logical replication with `pgoutput`, decoded into columns."""
