"""What only a checkout needs: its checks and pages, fuzzers and their samples, launchers of databases.

No wheel has it, and nothing that is in one imports it by itself (`qanat.runtime.workshop` asks for it).
"""
