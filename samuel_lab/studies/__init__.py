"""The studies: what is trained, on which data, and by which methods.

settings     the options of a study, checked before any work begins
study        what every study has
shift, offline, stability, compute      the paper's
within       studies that run inside another one's task
catalogue    the studies by name
"""
