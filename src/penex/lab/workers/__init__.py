"""Many workers on one PostgreSQL server: who has which pack, and what they hand over there.

A pack is of numbered things: trials of a study, or runs of a comparison. Nothing here knows which,
or imports torch.
"""
