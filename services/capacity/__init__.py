"""Are there as many machines as are wanted, and where?"""
