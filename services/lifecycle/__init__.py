"""Where is each Node on its way?"""
