"""SAMUEL's rivals, one file each: other weightings of experts on intervals, with the same interface.

Each is a subclass of `rival.py`'s rule, except `parameter_free.py`, which works differently.
"""
