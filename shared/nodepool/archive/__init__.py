"""What an archive of the log consists of: names, manifests, and the chain that they form.

The modules of this package are pure; `nodepool.archive.storage` reads and writes archives.
"""
