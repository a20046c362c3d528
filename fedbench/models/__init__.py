"""From a model entry to a classifier and the spaces that it can be trained in (all weights, adapters, a map's latent).

Nothing here knows clients, rounds or folders.
"""
