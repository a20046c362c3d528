"""What the program finds where it runs: GPUs, a job's allocation, locks, other programs, a terminal. Knows nothing of
the benchmark.
"""
