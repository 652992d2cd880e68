"""What is wrong, why, and what can I do about it? The console in a browser.

The console reads through the gateway and sends commands with the credentials of the signed-in
user, so it can show and change only what that user can.
"""
