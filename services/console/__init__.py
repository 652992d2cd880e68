"""What is wrong, why, and what can I do about it? The console in a browser, at the edge.

It reads through the gateway and sends commands with the credentials of the user who has signed in,
so it can show and change only what that user can.
"""
