"""The only writer: every file appears whole or not at all, and nothing is replaced that fedbench did not make."""
