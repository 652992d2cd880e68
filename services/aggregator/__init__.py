"""What is the NodePool's status now?"""
