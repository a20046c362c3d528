"""fedbench: which federated fine-tuning method gives the most accuracy per transmitted byte, and for whom?"""

__version__ = "0.1.0"
