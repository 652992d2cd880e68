"""The library that every service of the control plane is built on."""
