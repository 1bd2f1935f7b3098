"""Follows a job event log with HTCondor's own reader and prints what it sees, until a file says that all is written."""

import os
import sys

import htcondor2

log, done = sys.argv[1:]
reader = htcondor2.JobEventLog(log)
while True:
    # Looked at first: what was written before the file appeared is read in this round at the latest.
    last = os.path.exists(done)
    for event in reader.events(stop_after=1):
        print(int(event.type), event.cluster, event.proc, flush=True)
    if last:
        break
