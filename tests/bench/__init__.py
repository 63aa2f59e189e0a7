"""`make bench`: how fast Edgewise is, side by side with other engines in one Chromium.

Nothing here asserts a speed.
"""
