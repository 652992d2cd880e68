"""Who gets which machine of an offering, who waits, and who gives way: pure values and plans."""
