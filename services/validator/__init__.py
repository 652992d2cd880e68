"""Is this a valid wish?"""
