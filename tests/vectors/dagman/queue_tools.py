#!/usr/bin/env python3
"""condor_q, condor_rm, condor_hold and condor_release as far as run_vector.py uses them, for pools without these names.

Called through links of these names; UPDRAFT_TEST_PROGRAM is the binary, UPDRAFT_STATE_DIR the pool.
"""
import json, os, subprocess, sys

PROGRAM, STATE = os.environ["UPDRAFT_TEST_PROGRAM"], os.environ["UPDRAFT_STATE_DIR"]


def updraft(*words):
    return subprocess.run([PROGRAM, "--state-dir", STATE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def queue():
    reply = json.loads(updraft("queue", "--json").stdout)
    return reply["clusters"] if isinstance(reply, dict) else reply


def attributes():
    """Attributes that all jobs of a cluster share, by cluster."""
    found = {}
    for line in updraft("events", "--json").stdout.splitlines():
        event = json.loads(line)
        if event.get("event") == "ClusterSubmitted":
            found[event["cluster"]] = {a["name"].lower(): a["expr"].strip() for a in event["template"]["shared"]}
    return found


def main():
    name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
    if name == "condor_q":
        known = attributes()
        for c in queue():
            if c.get("idle", 0) + c.get("running", 0) + c.get("held", 0):
                print("%d.0 1 %s" % (c["cluster"], known.get(c["cluster"], {}).get("iwd", "").strip('"')))
        return 0
    verb = {"condor_rm": "rm", "condor_hold": "hold", "condor_release": "release"}[name]
    if "-constraint" in words:
        parts = [part.split("==") for part in words[words.index("-constraint") + 1].split("&&")]
        live, known = {c["cluster"] for c in queue()}, attributes()
        fits = lambda a: all(a.get(n.strip().lower(), "") == v.strip() for n, v in parts)
        jobs = [str(c) for c in known if c in live and fits(known[c])]
    else:
        jobs = [w for w in words if not w.startswith("-")]
    if not jobs:
        return 1
    done = updraft(verb, *jobs)
    sys.stdout.write(done.stdout + done.stderr)
    return done.returncode


sys.exit(main())
