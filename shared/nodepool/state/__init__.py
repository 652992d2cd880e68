"""Values that services are made of; they change by making a new one, and keep their order."""
