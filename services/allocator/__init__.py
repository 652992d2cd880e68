"""Which machine joins, and which Node leaves?"""
