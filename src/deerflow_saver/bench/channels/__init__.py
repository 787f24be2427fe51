"""Full state beside delta channels: what a thread costs to write, to store and to read in each."""
