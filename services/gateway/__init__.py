"""Who may come in, and what may they see? The front door, at the edge of the system.

The modules of this package are pure: they decide what is let in and what an answer contains.
`gateway.host` talks to the bus.
"""
