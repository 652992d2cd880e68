"""Talks to browsers and to the gateway: requests, sessions, the mirror of an organisation."""
