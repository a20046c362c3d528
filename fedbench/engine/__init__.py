"""From a spec, a store, a partition and a base to a run folder: rounds, local training, evaluation, checkpoints."""
