"""From run folders to tables, figures and a page that opens from disk.

Each step stands alone: :func:`fedbench.analysis.tables.aggregate`, :func:`fedbench.analysis.plot.plot` and
:func:`fedbench.analysis.report.report` read run folders and write below the results folder.
"""
