"""What lies in a results folder, held against the config: how far every run is, what is outdated, what is damaged."""
