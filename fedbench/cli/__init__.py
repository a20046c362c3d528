"""The command line: each command reads its options, calls one function and says what it wrote."""
