"""What machines should there be, where are they, and what boots on them?

The pure half of the inventory file: its documents, their rules, and the comparison of a machine
with what its controller says.
"""
