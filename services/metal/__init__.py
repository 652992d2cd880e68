"""What do the management controllers of real machines say, and do they match the inventory?

The modules of this package are pure. `metal.host` reads the inventory file, and talks to the
controllers over Redfish (https://www.dmtf.org/standards/redfish).
"""
