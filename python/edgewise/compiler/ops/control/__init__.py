"""If, Loop and Scan as jumps between the steps of a plan."""
