"""Which spot Node is taken back, and when?"""
