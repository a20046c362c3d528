"""``python -m fedbench``: the command line, also where no script is on the path."""

from fedbench.cli.commands import main

main()
