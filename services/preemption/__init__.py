"""Which spot Node goes back, and when?"""
