"""Explain what a NodePool wants, what prevents it, since when, and what would help.

`explain` in `nodepool.explanation.sentence` is a pure function of `Facts`. The command line reads
the facts from the documents of the read model, the aggregator from its state.
"""
