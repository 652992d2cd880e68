"""What remains of the past? The archive of the log, at the edge of the system.

The modules of this package are pure: they decide when a segment is complete. `archiver.host` reads
the bus and writes into the archive.
"""
