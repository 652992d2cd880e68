"""What a NodePool wants, what keeps it from that, since when, and what would help.

`explain` in `nodepool.explanation.sentence` is a pure function of `Facts`. The command line takes
them from the documents of the read model, the aggregator from its state.
"""
