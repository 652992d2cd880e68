"""Which side of a NodePool has to change: its object in the cluster, or the bus?"""
