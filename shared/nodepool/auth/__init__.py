"""Who is known to the bus, and what each identity may do there: pure, without keys or files."""
