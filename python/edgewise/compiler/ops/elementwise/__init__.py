"""One element of the output from one element of each input: arithmetic, casts, comparisons."""
