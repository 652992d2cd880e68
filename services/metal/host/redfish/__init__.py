"""Talks to the Redfish controllers of many machines from one process.

A controller is asked with aiohttp: a request is sent once, has a time and a size that it may take,
and follows no redirect. OpenStack's client, sushy, sends a request again whose connection broke,
up to ten times for one reset, and takes a thread per request and twice the processor time.
"""
