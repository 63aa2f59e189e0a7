"""`make bench`: the speed of Edgewise beside other engines in one Chromium. Nothing here asserts a
speed.
"""
