"""The child process that looks at the past for the gateway: `python -m gateway.host.past`."""

from gateway.host.past.looking import main

main()
