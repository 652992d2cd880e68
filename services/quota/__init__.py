"""May the organisation have so many Nodes?"""
