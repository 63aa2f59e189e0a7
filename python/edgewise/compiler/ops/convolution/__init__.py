"""Convolutions, pools and the windows that they share."""
