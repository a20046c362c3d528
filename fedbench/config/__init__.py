"""From config files to runs: entries, the grid of cells, and the spec and place of each.

Reads YAML and the published numbers of papers; touches no data and imports no torch, because planning must stay
cheap.
"""
