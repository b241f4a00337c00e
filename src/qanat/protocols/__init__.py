"""One module or package per mechanism, each a `Machine` without I/O. How to write one: docs/protocols.md."""
