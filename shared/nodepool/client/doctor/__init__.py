"""What is wrong with a set-up, as far as it shows on the bus, in the order of mending."""
