"""RocksDB: its write-ahead log files, decoded while another process writes them."""
