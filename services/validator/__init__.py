"""Is this NodePool valid?"""
