"""From a store to clients: who holds which training, validation and test samples.

One public file per scheme; it assigns training samples, everything else is shared.
"""
