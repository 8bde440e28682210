"""SAMUEL's rivals, one file each: other ways to weigh experts that come and go, under the same contract.

Each is a rule on the frame of `rival.py`, or, where it works differently (`parameter_free.py`), on its own.
"""
