"""What is missing for a Node: its marks and conditions, its drain, and the reports to the bus."""
