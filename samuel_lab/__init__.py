"""The paper's experiments and comparisons of online learners; needs `pip install "samuel-optim[lab]"`.

cli          the `samuel` command
report       tables, figures, the page and the live view, made from run folders
play         online learners on streams: `samuel play`
execution    trains the incomplete trials of a run
studies      the experiments: settings, validated before any work begins, and protocols
trial        how one network trains: methods by name, schedules, trainers, the loop
runs         the folder of a run, from which it can be resumed after any kill
data         data sets, decoded once into a cache, and batches as a function of seed and step
models       the networks
drawing      parts shared by the pages of `report` and `play`; tables are in `tables`
files        atomic writing of files
"""
