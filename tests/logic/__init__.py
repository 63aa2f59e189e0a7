"""Logic of both hosts: python/edgewise/logic as Python runs it, and as pages run it."""
