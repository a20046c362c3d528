"""Backbones: one file per family, each building a :class:`fedbench.models.classifier.Classifier`."""
