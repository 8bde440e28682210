"""The studies: task, data and methods of every experiment.

settings     typed options, validated before any work begins
study        the base class
shift, offline, stability, compute      the paper's studies
within       studies that use the task of another study
paper        the paper's printed figures
catalogue    the studies by name
"""
