"""What describes the bus and its objects to other programs, made from the classes."""
